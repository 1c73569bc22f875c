"""A short trial of a model: a consent question and a tool call in two turns.

Asked as sessions ask, with their prompts, tool and client, but about made-up memories. No database
is needed, nothing is stored, and no tool is carried out.
"""

import time
import uuid
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal
from urllib.parse import urlsplit

from refine import prompts
from refine.errors import InvalidValue, ProviderError
from refine.llm import dialects
from refine.llm.dialects import Dialect
from refine.llm.messages import Message, Privacy, Reply, ToolCall, tool_message, user_message
from refine.llm.provider import Provider
from refine.models import MAX_MUTATIONS
from refine.models.agent.agent import DEFAULT_CORE_TOKEN_BUDGET
from refine.prompts import as_entry, as_line
from refine.refinement.prompting import first_messages
from refine.rules.tokens import Room, token_estimate
from refine.running.consent_question import Ask, answer_to_question, not_open
from refine.running.model_calls import problem_with
from refine.tools.calls import error, without_echo
from refine.tools.refinement import DEFINITION, checked

Step = Literal["consent", "tool call", "result"]

SEARCHED_WORD: Final = "harbour"

# Both names of the output limit, with and without "" beside tool calls, with and without the
# reasoning of earlier answers; none has fields of its own.
_COMMON_DIALECTS: Final = ("plain", "alibaba", "openai", "groq")

_SYSTEM_PROMPT = (
    "You are taking part in a trial of the connection to you. The memories that you are shown are "
    "made up, and nothing that you answer changes anything."
)
_REQUEST = (
    "Thank you. Whatever you answered, nothing will be changed in this trial. Call the tool "
    f'`refinement` now, with the action search and the query "{SEARCHED_WORD}". When you have its '
    "result, call it once more, with the action complete and a summary of a few words."
)
_ONLY_A_TRIAL = "this trial only takes search and complete; nothing was done"

_CONTENTS = (
    "The harbour office opens at seven, and its letters go into the blue folder.",
    "Mira prefers short answers in the morning and longer ones after lunch.",
    "The ferry to the island leaves at 8:40 on weekdays.",
    "We agreed to call the second draft of the map the grey one.",
    "Otto asked for the tide tables of the harbour, and printed them twice.",
)
_FIRST_ID = 101
_REMOVABLE_TOKENS = 20


def made_up_entries() -> list[dict[str, Any]]:
    """Return the made-up memories, as a session shows memories."""
    return [
        {
            "id": _FIRST_ID + position,
            "date": f"2026-01-{12 + position}",
            "tokens": token_estimate(content),
            "constitutional": False,
            "tags": [],
            "content": content,
        }
        for position, content in enumerate(_CONTENTS)
    ]


@dataclass
class Trial:
    """What a model replied, step by step; ``fault`` ended the last step, if there is one.

    The consent question can have several replies: it is asked again as in sessions. Without
    ``offers_tool`` only that question is asked.
    """

    provider: Provider
    model_id: str
    room: Room
    seconds: float
    offers_tool: bool = True
    step: Step = "consent"
    fault: ProviderError | None = None
    replies: dict[Step, list[Reply]] = field(default_factory=dict)
    _messages: list[Message] = field(default_factory=list, repr=False)

    def run(self) -> "Trial":
        """Ask, until the end or the first fault, and return this trial."""
        deadline = time.monotonic() + self.seconds
        privacy = Privacy(session_id=str(uuid.uuid4()), account_ref="trial")
        self._messages = opening(self.provider, self.model_id)

        def ask(times: int, only_words: bool) -> Reply:
            reply = self.provider.generate(
                self.model_id,
                self._messages,
                [DEFINITION] if self.offers_tool else [],
                privacy,
                deadline=deadline,
                max_output_tokens=self.room.output(times),
                tool_choice="none" if only_words else "auto",
            )
            self.replies.setdefault(self.step, []).append(reply)
            return reply

        try:
            answer, _ = answer_to_question(ask, self._messages)
            if self.offers_tool:
                # sessions end at a NO; here the conversation continues, and calls want results
                self._messages += not_open(answer)
                self._let_call(ask)
        except ProviderError as fault:
            self.fault = fault
        return self

    def _let_call(self, ask: Ask) -> None:
        self.step = "tool call"
        self._messages.append(user_message(_REQUEST))
        called = ask(1, False)
        if called.tool_calls:
            self.step = "result"
            self._messages += [called.message, *map(_result_of, called.tool_calls)]
            ask(1, False)

    @property
    def all_replies(self) -> list[Reply]:
        """Every reply, in order."""
        return [reply for replies in self.replies.values() for reply in replies]


def opening(provider: Provider, model_id: str) -> list[Message]:
    """Return the made-up ledger and the consent question."""
    entries = made_up_entries()
    mass_tokens = sum(entry["tokens"] for entry in entries)
    ledger = prompts.render(
        "ledger",
        entries=[as_entry(entry) for entry in entries],
        shown_memories=len(entries),
        all_memories=len(entries),
    )
    question = prompts.render(
        "consent",
        max_mutations=MAX_MUTATIONS,
        removable_tokens=_REMOVABLE_TOKENS,
        keeps_details=True,
        memories=len(entries),
        mass_tokens=mass_tokens,
        budget_tokens=DEFAULT_CORE_TOKEN_BUDGET,
        over_budget_tokens=0,
        last_session="none yet",
        trigger="cli",
        is_swept_by_admin=False,
        duplicates_removed=0,
        journal=[],
    )
    is_marked = provider.dialect.needs_ledger_mark(model_id)
    return first_messages(_SYSTEM_PROMPT, ledger, question, is_marked=is_marked)


def problem_of(call: ToolCall) -> str | None:
    """Return why a session would refuse the call as it is written; None if it would not."""
    if (problem := problem_with(call, DEFINITION)) is not None:
        return problem
    params = {name: value for name, value in call.arguments.items() if name != "action"}
    try:
        checked(call.arguments.get("action"), params)
    except InvalidValue as fault:
        return str(fault)
    return None


def _result_of(call: ToolCall) -> Message:
    return tool_message(call, as_line(without_echo(_outcome(call), call.arguments)))


def _outcome(call: ToolCall) -> dict[str, Any]:
    """Return a result as the tool gives it, made up."""
    left = {"operations_left": MAX_MUTATIONS, "tokens_left": _REMOVABLE_TOKENS}
    if (problem := problem_of(call)) is not None:
        return {**error(problem), **left}
    if call.arguments["action"] == "complete":
        return {"type": "refinement_complete", "stats": {}, **left}
    if call.arguments["action"] != "search":
        return {**error(_ONLY_A_TRIAL), **left}
    found = [entry for entry in made_up_entries() if SEARCHED_WORD in entry["content"]]
    listed = {"count": len(found), "results": found}
    return {"type": "search_results", "query": call.arguments.get("query"), **listed, **left}


# -- what a server refused ------------------------------------------------------------------------


def dialect_of_host(provider: Provider) -> Dialect | None:
    """Return the dialect of the provider's own host; None if the host is nobody's."""
    return dialects.of_host(urlsplit(provider.base_url).hostname or "")


def may_be_a_dialect(trial: Trial) -> bool:
    """Tell whether another dialect could help after the trial's fault."""
    was_refused = trial.fault is not None and trial.fault.kind == "invalid_request"
    return was_refused and dialect_of_host(trial.provider) is not trial.provider.dialect


def accepted_dialect(trial: Trial) -> Dialect | None:
    """Ask again in other dialects; return the first in which nothing is refused, or None."""
    known = dialect_of_host(trial.provider)
    # a known host's alone: another could leave out the privacy terms that this provider takes
    others = [known] if known is not None else map(dialects.named, _COMMON_DIALECTS)
    for dialect in others:
        if dialect is not trial.provider.dialect:
            again = _again(trial, dialect)
            if again.fault is None or again.fault.kind == "no_answer":
                return dialect
    return None


def refuses_tools(trial: Trial) -> bool:
    """Ask the consent question again without a tool; tell whether that is accepted."""
    return bool(_again(trial, trial.provider.dialect, offers_tool=False).replies)


def _again(trial: Trial, dialect: Dialect, *, offers_tool: bool = True) -> Trial:
    provider = replace(trial.provider, dialect=dialect)
    return Trial(provider, trial.model_id, trial.room, trial.seconds, offers_tool).run()
