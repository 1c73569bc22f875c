"""One agent's memories: listed, flagged and restored unseen; content only under a grant."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from flask import abort, flash, redirect, render_template, request, url_for
from flask.typing import ResponseReturnValue
from sqlalchemy import Select, select
from sqlalchemy.orm import joinedload

from refine import clock
from refine.extensions import db
from refine.models import Agent, AgentMemory, AuditLog
from refine.models.columns import id_in
from refine.models.ledger.history import records_of_memory
from refine.models.ledger.ledger import Composition
from refine.models.ledger.memory import is_of_kind
from refine.rules.content import TAGS
from refine.web import granted, scope
from refine.web.forms import done, own_path, shown_again
from refine.web.lists import PAGE_ROWS, page_of
from refine.web.record_changes import MemoryChange, memory_changes

pages = scope.area("ledger")


_LISTED: tuple[Any, ...] = (
    AgentMemory.id,
    AgentMemory.created_at,
    AgentMemory.token_estimate,
    AgentMemory.tags,
    AgentMemory.constitutional,
    AgentMemory.discarded_at,
    AgentMemory.discarded.label("discarded"),
    AgentMemory.is_locked.label("is_locked"),
    AgentMemory.is_erased.label("is_erased"),
)


# The kinds in which memories are shown, with their names and how many of them there are.
KINDS: dict[str, tuple[str, Callable[[Composition], int]]] = {
    "core": ("core", lambda kept: kept.core),
    "constitutional": ("constitutional", lambda kept: kept.constitutional),
    "journal": ("journal, last week", lambda kept: kept.journal_shown),
    "expired": ("journal, expired", lambda kept: kept.journal_expired),
    "discarded": ("discarded", lambda kept: kept.discarded),
}


class LedgerFilter(NamedTuple):
    kind: str
    tag: str

    @classmethod
    def of(cls, fields: Mapping[str, str]) -> "LedgerFilter":
        kind, tag = fields.get("kind", ""), fields.get("tag", "")
        return cls(kind if kind in KINDS else "core", tag if tag in TAGS else "")

    def query(self, agent: Agent) -> Select[AgentMemory]:
        query = (
            select(AgentMemory)
            .where(AgentMemory.agent_id == agent.id, is_of_kind(self.kind, clock.now()))
            .order_by(AgentMemory.created_at.desc(), AgentMemory.id.desc())
        )
        return query.where(AgentMemory.tags.contains([self.tag])) if self.tag else query


def counted_kinds(composition: Composition) -> list[tuple[str, str, int]]:
    return [(kind, name, count(composition)) for kind, (name, count) in KINDS.items()]


@pages.get("/agents/<int:agent_id>/ledger")
def page(agent_id: int) -> str:
    agent = scope.agent_or_404(agent_id)
    chosen = LedgerFilter.of(request.args)
    found = page_of(chosen.query(agent).with_only_columns(*_LISTED))
    opened = granted.memories(agent.id, [memory.id for memory in found.rows])
    return _page(agent, chosen, page=found, memories=found.rows, texts=opened)


@pages.post("/agents/<int:agent_id>/ledger")
@scope.admins_only
@shown_again(
    lambda agent_id, error: _page(
        scope.agent_or_404(agent_id), LedgerFilter.of(request.form), error=error
    )
)
def search(agent_id: int) -> ResponseReturnValue:
    agent = scope.agent_or_404(agent_id)
    chosen, text = LedgerFilter.of(request.form), request.form.get("search", "")
    found = granted.search(
        agent.id,
        text,
        chosen.query(agent),
        rows=PAGE_ROWS,
        after_id=id_in(request.form.get("after", "")),
    )
    if found is None:
        flash("The memories are sealed: ask the agent for access to search them.")
        return redirect(url_for("ledger.page", agent_id=agent_id), 303)
    listed = chosen.query(agent).with_only_columns(*_LISTED).where(AgentMemory.id.in_(found.texts))
    rows = db.session.execute(listed).all()
    return _page(
        agent, chosen, texts=found.texts, memories=rows, found=found, searched=text.strip()
    )


@pages.post("/agents/<int:agent_id>/memories/<int:memory_id>/constitutional")
@scope.admins_only
def set_constitutional(agent_id: int, memory_id: int) -> ResponseReturnValue:
    memory = memory_or_404(agent_id, memory_id)
    is_wanted = request.form.get("constitutional") == "1"
    memory.set_constitutional(is_wanted, user=scope.user())
    said = f"Memory #{memory_id} is {'now' if is_wanted else 'no longer'} constitutional."
    return done(said, _back_to(agent_id))


@pages.post("/agents/<int:agent_id>/memories/<int:memory_id>/restore")
@scope.admins_only
def restore(agent_id: int, memory_id: int) -> ResponseReturnValue:
    memory = memory_or_404(agent_id, memory_id)
    was_discarded = memory.discarded
    memory.restore(user=scope.user())
    restored = f"Memory #{memory_id} was restored to the {memory.memory_type} memories."
    said = restored if was_discarded else f"Memory #{memory_id} is not discarded, so it stays."
    return done(said, _back_to(agent_id))


def _page(
    agent: Agent, chosen: LedgerFilter, texts: dict[int, str] | None = None, **shown: Any
) -> str:
    composition = agent.ledger.composition(clock.now())
    return render_template(
        "agent/ledger.html",
        agent=agent,
        filter=chosen,
        kinds=[(kind, f"{name} ({count:,})") for kind, name, count in counted_kinds(composition)],
        tags=[(tag, tag) for tag in TAGS],
        grant=granted.active_grant_for(agent.id),
        max_searched=granted.MAX_SEARCHED_CHARACTERS,
        texts=texts,
        **shown,
    )


def _back_to(agent_id: int) -> str:
    return own_path(request.form.get("back", "")) or url_for("ledger.page", agent_id=agent_id)


def memory_or_404(agent_id: int, memory_id: int) -> AgentMemory:
    agent = scope.agent_or_404(agent_id)
    memory = db.session.get(AgentMemory, memory_id)
    if memory is None or memory.agent_id != agent.id:
        abort(404)
    return memory


class Version(NamedTuple):
    record: AuditLog
    change: MemoryChange
    merged_from: Sequence[int]
    merged_into: Sequence[int]
    text: granted.TextChange | None


@pages.get("/agents/<int:agent_id>/memories/<int:memory_id>")
def memory_page(agent_id: int, memory_id: int) -> str:
    opened = granted.versions(agent_id, memory_id)  # first, as reading commits
    memory = memory_or_404(agent_id, memory_id)
    records = db.session.scalars(
        records_of_memory(memory).options(joinedload(AuditLog.user)).limit(granted.MAX_RECORDS)
    ).all()
    texts = {change.record_id: change for change in opened.changes} if opened is not None else {}
    return render_template(
        "memory/page.html",
        agent=scope.agent_or_404(agent_id),
        grant=granted.active_grant_for(agent_id),
        memory=memory,
        opened=opened,
        versions=[_version(memory_id, record, texts.get(record.id)) for record in records],
        has_earlier=len(records) == granted.MAX_RECORDS,
    )


def _version(memory_id: int, record: AuditLog, text: granted.TextChange | None) -> Version:
    changes = {change.id: change for change in memory_changes(record)}
    is_merge = record.action == "memory_refinement_consolidate"
    others = [id_ for id_ in changes if id_ != memory_id] if is_merge else []
    is_result = changes[memory_id].is_new
    return Version(
        record,
        changes[memory_id],
        merged_from=others if is_result else [],
        merged_into=[id_ for id_ in others if changes[id_].is_new] if not is_result else [],
        text=text,
    )
