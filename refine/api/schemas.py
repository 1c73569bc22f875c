"""What the API takes and gives, in JSON Schema: checked against, and shown in the document."""

from typing import get_args

from refine.api.checking import Schema
from refine.models.agent import MAX_CORE_TOKEN_BUDGET
from refine.models.ledger import MEMORY_TYPES
from refine.models.runs.access import END_REASONS, REASONS
from refine.models.runs.access import STATUSES as GRANT_STATUSES
from refine.models.runs.run import LIVE
from refine.models.runs.session.state import ENDED, TRIGGERS, Channel
from refine.models.runs.task.task import ENDED as TASK_ENDED
from refine.rules.content import MAX_CONTENT_CHARACTERS, MAX_PROMPT_CHARACTERS, TAGS
from refine.rules.conversation import (
    IGNORED,
    MAX_CONVERSATION_CHARACTERS,
    MAX_MESSAGES,
    ROLES,
)

MAX_PAGE_ROWS = 200
DEFAULT_PAGE_ROWS = 50

_TEXT: Schema = {"type": "string"}
_ID: Schema = {"type": "integer"}
_COUNT: Schema = {"type": "integer"}
_YES_OR_NO: Schema = {"type": "boolean"}
_UUID: Schema = {"type": "string", "format": "uuid"}
_TIME: Schema = {"type": "string", "format": "date-time"}
_OPEN: Schema = {"type": "object"}
_USD: Schema = {"type": "string", "description": "A decimal number.", "examples": ["0.012345"]}


def one_of(*words: str, **remarks: object) -> Schema:
    """Return the schema of a text that is one of these."""
    return {"type": "string", "enum": list(words), **remarks}


def nullable(schema: Schema) -> Schema:
    """Return the schema of the same, or null."""
    both = {**schema, "type": [schema["type"], "null"]}
    if "enum" in schema:
        both["enum"] = [*schema["enum"], None]
    return both


def _list(of: Schema, **remarks: object) -> Schema:
    return {"type": "array", "items": of, **remarks}


def _sent(required: tuple[str, ...] = (), **properties: Schema) -> Schema:
    """A body: no field but these."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


def _given(**properties: Schema) -> Schema:
    """An answer: all of these are in it."""
    return {"type": "object", "properties": properties, "required": list(properties)}


def _page(name: str, of: str) -> Schema:
    return _given(**{name: _list(reference(of)), "next_cursor": nullable(_TEXT)})


def reference(name: str) -> Schema:
    """Return what stands for a schema of ``SCHEMAS`` in the document."""
    return {"$ref": f"#/components/schemas/{name}"}


_PROMPT: Schema = nullable(
    {
        "type": "string",
        "description": f"At most {MAX_PROMPT_CHARACTERS:,} characters; null: the default. "
        "Written, and never shown.",
    }
)
_THRESHOLD: Schema = nullable(
    {
        "type": "number",
        "exclusiveMinimum": 0,
        "maximum": 1,
        "description": "The share of its ledger that a session leaves standing; at most 4 "
        "decimals; null: the default, 0.75.",
    }
)
_BUDGET: Schema = {
    "type": "integer",
    "minimum": 1,
    "maximum": MAX_CORE_TOKEN_BUDGET,
    "description": "The tokens of core memories that the agent should stay under.",
}
_SETTINGS: dict[str, Schema] = {
    "name": {"type": "string", "minLength": 1, "examples": ["Wren"]},
    "model_id": {"type": "string", "minLength": 1, "examples": ["rehearsal/wren"]},
    "system_prompt": _PROMPT,
    "reflection_prompt": {
        **_PROMPT,
        "description": f"{_PROMPT['description']} It does not begin the daily reflection, which "
        "is the agent's to turn on; null ends it.",
    },
    "memory_reflection_prompt": _PROMPT,
    "refinement_prompt": _PROMPT,
    "refinement_threshold": _THRESHOLD,
    "core_token_budget": _BUDGET,
    "active": _YES_OR_NO,
    "paused": _YES_OR_NO,
}

SCHEMAS: dict[str, Schema] = {
    # -- sent -------------------------------------------------------------------------------------
    "NewMemory": _sent(
        ("content", "memory_type"),
        content={
            "type": "string",
            "minLength": 1,
            "description": f"1 to {MAX_CONTENT_CHARACTERS:,} characters once trimmed.",
            "examples": ["The words of the memory."],
        },
        memory_type=one_of(
            *MEMORY_TYPES, description="core: permanent; journal: shown for one week."
        ),
        tags=_list(one_of(*TAGS), examples=[[]]),
    ),
    "NewConversation": _sent(
        ("messages",),
        messages=_list(
            _sent(
                ("role",),
                role=one_of(*ROLES),
                content={
                    "type": ["string", "array", "null"],
                    "items": {
                        "type": "object",
                        "properties": {"type": _TEXT, "text": _TEXT},
                        "required": ["type"],
                    },
                    "description": "A text, or a list of parts, of which those of type `text` "
                    "are read. A message without text is left out.",
                    "examples": ["What was said."],
                },
                name=nullable(_TEXT),
                at={
                    "type": ["string", "number", "null"],
                    "description": "When: ISO 8601, or a count from 1970 in any unit.",
                },
                **dict.fromkeys(IGNORED, {"description": "Taken, and not looked at."}),
            ),
            minItems=1,
            examples=[[{"role": "user", "content": "What was said."}]],
            description="As chat completions have them, those of tools included: some text must "
            f"be there. In their order; 1 to {MAX_MESSAGES:,}, of at most "
            f"{MAX_CONVERSATION_CHARACTERS:,} characters in all.",
        ),
    ),
    "Nothing": _sent(),
    "ToolArguments": {
        "type": "object",
        "description": "The arguments as the model wrote them, to the letter. What cannot be read "
        "is answered with an error of the tool, for the model to see.",
        "examples": [{"action": "view", "field": "name"}],
    },
    "NewAgent": _sent(("name", "model_id"), **_SETTINGS),
    "AgentChanges": _sent((), **_SETTINGS),
    "NewToken": _sent(
        (), expires_at=nullable({**_TIME, "description": "When it ends; null: never by itself."})
    ),
    # -- given ------------------------------------------------------------------------------------
    "Context": _given(
        context=nullable({**_TEXT, "description": "Markdown for the agent's prompts."}),
        core_tokens=_COUNT,
        budget=_COUNT,
    ),
    "Memory": _given(
        id=_ID,
        memory_type=one_of(*MEMORY_TYPES),
        content=_TEXT,
        tags=_list(one_of(*TAGS)),
        constitutional=_YES_OR_NO,
        token_estimate=_COUNT,
        created_at={**_TIME, "description": "The origin date; a merge may set it back."},
        recorded_at=_TIME,
        discarded_at=nullable(_TIME),
    ),
    "Memories": _page("memories", "Memory"),
    "Tools": _list(_OPEN, description="Function definitions, as chat completions take them."),
    "ToolResult": {
        "type": "object",
        "properties": {"type": _TEXT},
        "required": ["type"],
        "description": "What goes back to the model; `type` is `error` where it was refused.",
    },
    "Extraction": _given(id=_UUID, status=one_of(*LIVE, *TASK_ENDED), created_at=_TIME),
    "Session": _given(
        id=_UUID,
        trigger=one_of(*TRIGGERS),
        status=one_of(*LIVE, *ENDED),
        end_reason=nullable(_TEXT),
        model_id=_TEXT,
        threshold={"type": "number"},
        mass_before=nullable(_COUNT),
        mass_after=nullable(_COUNT),
        memories_before=nullable(_COUNT),
        memories_after=nullable(_COUNT),
        duplicates_removed=_COUNT,
        removable_tokens=_COUNT,
        removed_tokens=_COUNT,
        mutation_count=_COUNT,
        stats=_given(consolidated=_COUNT, updated=_COUNT, deleted=_COUNT, protected=_COUNT),
        prompt_tokens=_COUNT,
        cached_tokens=_COUNT,
        completion_tokens=_COUNT,
        cost_usd=_USD,
        summary=nullable(_TEXT),
        created_at=_TIME,
        started_at=nullable(_TIME),
        ended_at=nullable(_TIME),
        undone_at=nullable(_TIME),
        undone_through=nullable(one_of(*get_args(Channel), description="Who undid it, or where.")),
    ),
    "Sessions": _page("sessions", "Session"),
    "Undone": _given(
        session=reference("Session"),
        undone_before=_YES_OR_NO,
        effect=_given(
            brought_back=_COUNT,
            discarded=_COUNT,
            rewritten=_COUNT,
            unprotected=_COUNT,
            retagged=_COUNT,
            memories_before=_COUNT,
            memories_after=_COUNT,
            mass_before=_COUNT,
            mass_after=_COUNT,
        ),
    ),
    "Record": _given(
        id=_ID,
        sequence=_ID,
        action=_TEXT,
        subject_type=nullable(_TEXT),
        subject_id=nullable(_TEXT),
        session_id=nullable(_UUID),
        user_id=nullable({**_ID, "description": "null: the agent itself, or the system."}),
        data=_OPEN,
        sealed={
            **_OPEN,
            "description": "Contents before and after. Empty in records of access: the words of "
            "those who read are theirs.",
        },
        created_at=_TIME,
        hash=_TEXT,
    ),
    "Records": _page("records", "Record"),
    "Grant": _given(
        id=_UUID,
        status=one_of(*GRANT_STATUSES),
        user={**_TEXT, "description": "Who asked."},
        reason=one_of(*REASONS),
        purpose={**_TEXT, "description": "In their own words, as the agent was told."},
        duration_minutes=_COUNT,
        created_at=_TIME,
        granted_at=nullable(_TIME),
        expires_at=nullable(_TIME),
        ended_at=nullable(_TIME),
        end_reason=nullable(one_of(*END_REASONS)),
        times_viewed={**_COUNT, "description": "How often something was looked at under it."},
    ),
    "Grants": _page("grants", "Grant"),
    "Agent": _given(
        id=_ID,
        name=_TEXT,
        model_id=_TEXT,
        refinement_threshold=nullable({"type": "number"}),
        core_token_budget=_COUNT,
        core_memories=_COUNT,
        core_tokens=_COUNT,
        active=_YES_OR_NO,
        paused=_YES_OR_NO,
        last_refinement_at=nullable(_TIME),
        created_at=_TIME,
    ),
    "Agents": _page("agents", "Agent"),
    "Token": _given(
        id=_ID,
        agent_id=_ID,
        token={**_TEXT, "description": "The token itself, this once."},
        hint={**_TEXT, "description": "How it begins: what lists show of it."},
        created_at=_TIME,
        expires_at=nullable(_TIME),
    ),
    "Usage": _given(
        time_zone={**_TEXT, "description": "Whose months these are: the account's."},
        usage=_list(
            _given(
                month={"type": "string", "examples": ["2026-11"]},
                agent_id=_ID,
                agent=_TEXT,
                sessions={
                    **_COUNT,
                    "description": "Refinement sessions asked for in that month, "
                    "whatever became of them.",
                },
                reflections={**_COUNT, "description": "Reflections, likewise."},
                conversations={**_COUNT, "description": "Conversations handed over in that month."},
                prompt_tokens={**_COUNT, "description": "Of all three, as are the next."},
                cached_tokens=_COUNT,
                completion_tokens=_COUNT,
                cost_usd={**_USD, "description": "What all three cost: a decimal number."},
            )
        ),
    ),
    "Problem": {
        "type": "object",
        "properties": {
            "type": {"type": "string", "examples": ["urn:refine:problem:invalid"]},
            "title": _TEXT,
            "status": {"type": "integer"},
            "detail": _TEXT,
            "errors": _list(_given(field=_TEXT, detail=_TEXT), description="Of a 422: the fields."),
            "session_id": {**_UUID, "description": "Of `session-already-live`: that session."},
            "obstacles": _list(_OPEN, description="Of `undo-conflict`: the records in the way."),
            "unexplained_memory_ids": _list(
                _ID, description="Of `undo-conflict`: memories that changed without a record."
            ),
            "token_id": {**_ID, "description": "Of `shown-once`: the token that was minted."},
            "hint": {**_TEXT, "description": "Of `shown-once`: how that token begins."},
        },
        "required": ["type", "title", "status", "detail"],
    },
}
