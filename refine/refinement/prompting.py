"""What a session's model reads: one conversation, everything stable first; and second readings.

    system      a line of the agent's own, and its system prompt
    user        the ledger, then the consent question
    assistant   its answer
    user        the refinement brief
    assistant   tool calls …, each answered by a tool message

Each request repeats the one before, word for word, so that providers' prompt caches serve it.
"""

import bisect
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from refine import clock, prompts, settings
from refine.extensions import db
from refine.llm.messages import Message, Reply, user_message
from refine.models import MAX_MUTATIONS, Agent, AgentMemory, RefinementSession
from refine.models.columns import in_ids
from refine.models.runs.session.entry import SessionEntry
from refine.models.runs.session.judging import MAX_RETIRED, Cause
from refine.models.runs.session.session import CONSENTED_ENDS
from refine.prompts import as_block, as_entry, as_line
from refine.rules.consent import without_reasoning
from refine.rules.hints import Group, groups_alike, without_resting
from refine.rules.meaning import DELETION_SHARE
from refine.rules.quantities import in_percent
from refine.rules.retention import LONGER_SHARE, LONGER_TOKENS, MAX_MERGED
from refine.rules.second_reading import Case, Verdict, answers_in, verdicts_in
from refine.rules.tokens import Room, tokens_at_most
from refine.tools.calls import function_definition
from refine.tools.refinement import DEFINITION


@dataclass(frozen=True)
class LedgerExcerpt:
    """The core memories shown, all or a batch; ``all_memories`` counts those not shown, too."""

    lines: list[str]
    shown_ids: frozenset[int]
    through_id: int | None
    all_memories: int
    room_tokens: int

    @property
    def is_batch(self) -> bool:
        return len(self.lines) < self.all_memories

    @classmethod
    def of(cls, agent: Agent, *, room_tokens: int, after_id: int | None = None) -> "LedgerExcerpt":
        """Return what fits, beginning after ``after_id``; without memories too large for it."""
        key = agent.data_key()
        lines = {each.id: as_entry(each.ledger_entry(key)) for each in agent.ledger.each_core()}
        tokens = {id_: tokens_at_most(line) for id_, line in lines.items()}
        shown, through_id = list(lines), None
        if sum(tokens.values()) > room_tokens:
            # in order of id from after_id on, and again from the start
            in_turn = sorted(lines, key=lambda id_: (id_ <= (after_id or 0), id_))
            fitting = [id_ for id_ in in_turn if tokens[id_] <= room_tokens]
            taken = list(itertools.accumulate(tokens[id_] for id_ in fitting))
            shown = fitting[: bisect.bisect_right(taken, room_tokens)]
            through_id = shown[-1] if shown else None
        ids = frozenset(shown)
        shown_lines = [line for id_, line in lines.items() if id_ in ids]
        return cls(shown_lines, ids, through_id, len(lines), room_tokens)


def room_for_ledger(room: Room, agent: Agent) -> int:
    own = [agent.system_message, agent.effective_refinement_prompt]
    return room.for_content([*own, *_journal(agent, clock.now()), *texts_of_every_session()])


def texts_of_every_session() -> list[str]:
    return [*map(prompts.source, ("ledger", "consent", "session")), as_line(DEFINITION)]


def opening(
    session: RefinementSession, ledger: LedgerExcerpt, *, is_marked: bool = False
) -> list[Message]:
    """Return the messages that ask for consent; ``is_marked``: with a cache mark at the ledger."""
    agent = session.agent
    shown = prompts.render(
        "ledger",
        entries=ledger.lines,
        shown_memories=len(ledger.lines),
        all_memories=ledger.all_memories,
    )
    question = prompts.render(
        "consent",
        **_figures(session),
        trigger=session.trigger,
        is_swept_by_admin=session.is_automatic and session.user_id is not None,
        duplicates_removed=session.duplicates_removed,
        journal=_journal(agent, clock.now()),
    )
    return first_messages(agent.system_message, shown, question, is_marked=is_marked)


def first_messages(
    system_prompt: str, ledger: str, question: str, *, is_marked: bool
) -> list[Message]:
    """Return the messages that show a ledger and ask; ``is_marked`` as in ``opening``."""
    content: Any = f"{ledger}\n\n{question}"
    if is_marked:
        mark = {"cache_control": {"type": "ephemeral"}}
        content = [{"type": "text", "text": ledger, **mark}, {"type": "text", "text": question}]
    return [{"role": "system", "content": system_prompt}, {"role": "user", "content": content}]


def brief(session: RefinementSession, hints: Sequence[Group] = ()) -> str:
    style, is_default = session.agent.effective("refinement_prompt")
    return prompts.render(
        "session",
        **_figures(session),
        max_merged=MAX_MERGED,
        max_retired=MAX_RETIRED,
        longer_share=in_percent(LONGER_SHARE),
        longer_tokens=LONGER_TOKENS,
        likeness=in_percent(settings.current().likeness),
        deletion_likeness=in_percent(max(settings.current().likeness, DELETION_SHARE)),
        hints=hints,
        refused=_refused_before(session),
        style=as_block(style),
        has_own_style=not is_default,
    )


def _figures(session: RefinementSession) -> dict[str, Any]:
    agent, mass_tokens = session.agent, session.mass_before or 0
    rules = settings.current()
    is_over_budget = mass_tokens > agent.core_token_budget
    return {
        "today": f"{clock.now():%Y-%m-%d}",
        "max_mutations": MAX_MUTATIONS,
        "removable_tokens": session.removable_tokens,
        "keeps_details": rules.details == "keep",
        "has_second_reading": rules.has_second_reading,
        "memories": session.memories_before,
        "mass_tokens": mass_tokens,
        "budget_tokens": agent.core_token_budget,
        "over_budget_tokens": mass_tokens - agent.core_token_budget if is_over_budget else 0,
        "last_session": _last_session(session),
    }


def _journal(agent: Agent, at: datetime) -> list[str]:
    return [
        as_line(memory.dated_content()) for memory in db.session.scalars(agent.ledger.journal(at))
    ]


def _last_session(session: RefinementSession) -> str:
    last = RefinementSession.last_ended_of(session.agent, before=session.created_at)
    if last is None or last.ended_at is None:
        return "none yet"
    undone = "; undone since" if last.undone_at is not None else ""
    ended = f"{last.ended_at:%Y-%m-%d}, {last.status} ({as_line(last.end_reason)}){undone}."
    return f"{ended} {last.summary_line()}" if last.status in CONSENTED_ENDS else ended


CAUSES: dict[Cause, str] = {
    "sure": "it would have lost or falsified something",
    "doubtful": "it would have left out too much",
    "second_reading": "the second reading objected",
    "retiring": "nothing could be retired in this way",
}


def _refused_before(session: RefinementSession) -> list[tuple[list[int], str]]:
    """Return what the last session was refused about memories that are as they were, and why."""
    last = RefinementSession.last_ended_of(
        session.agent, before=session.created_at, statuses=CONSENTED_ENDS
    )
    refused = last.refused if last is not None else []
    ids = {id_ for each in refused for id_ in each["ids"]}
    if last is None or not ids:
        return []
    kept = session.agent.ledger.core().with_only_columns(AgentMemory.id)
    as_they_were = in_ids(AgentMemory.id, ids), AgentMemory.updated_at < last.started_at
    unchanged = set(db.session.scalars(kept.where(*as_they_were)))
    return [
        (each["ids"], CAUSES[each["cause"]])
        for each in refused
        if unchanged.issuperset(each["ids"])
    ]


MAX_GROUPS = 20


def groups_to_look_at(session: RefinementSession) -> list[Group]:
    """Return groups of alike memories that do not rest; those shown in full come first."""
    entries = SessionEntry.of(session)
    texts, locked, shown = dict[int, str](), set[int](), set[int]()
    for memory in session.agent.ledger.each_core():
        if (entry := entries.get(memory.id)) is not None:
            texts[memory.id] = memory.content
            locked |= {memory.id} if memory.edit_lock is not None else set()
            shown |= {memory.id} if entry.shown_digest is not None else set()
    groups = without_resting(groups_alike(texts, locked), session.earlier_hints())
    groups.sort(key=lambda group: not shown.issuperset(group.ids))
    return groups[:MAX_GROUPS]


# -- a second reading of edits by the agent's own model, which knows nothing of the session -------

_WORDS = {"type": "array", "items": {"type": "string"}}
_ANSWER = {
    "type": "object",
    "properties": {"case": {"type": "integer"}, **dict.fromkeys(Verdict._fields, _WORDS)},
    "required": ["case", *Verdict._fields],
}

READING = function_definition(
    "second_reading",
    "Your reading of each case.",
    {"cases": {"type": "array", "items": _ANSWER}},
)


def reading_of(agent: Agent, cases: Sequence[Case], *, is_repeated: bool) -> list[Message]:
    """Return the messages that ask for it; ``is_repeated``: an answer could not be used."""
    entries = [prompts.as_line(case.as_entry(n)) for n, case in enumerate(cases, start=1)]
    shown = prompts.render("second_reading_cases", cases=entries, is_repeated=is_repeated)
    system = agent.first_message(prompts.render("second_reading", today=f"{clock.now():%Y-%m-%d}"))
    return [{"role": "system", "content": system}, user_message(shown)]


def verdicts_of(reply: Reply, cases: int) -> list[Verdict | None]:
    """Return the verdicts in a reply, given by a call or in words; None for one of no use."""
    called = [
        each.arguments["cases"] for each in reply.tool_calls if each.arguments.keys() == {"cases"}
    ]
    answers = [answer for each in called if isinstance(each, list) for answer in each]
    return verdicts_in(answers or answers_in(without_reasoning(reply.text or "")), cases)
