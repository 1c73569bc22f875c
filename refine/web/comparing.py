"""Two sessions side by side: settings, figures, effects and cost, without content."""

import uuid
from collections.abc import Callable
from typing import NamedTuple

from flask import Blueprint, abort, flash, redirect, render_template, request
from flask.typing import ResponseReturnValue
from sqlalchemy import select

from refine.extensions import db
from refine.models import RefinementSession
from refine.rules.personal import masked_id
from refine.rules.quantities import cost_in_words
from refine.web import scope
from refine.web.formatting import minute, number, seconds
from refine.web.links import url_in_account
from refine.web.presenting import before_and_after
from refine.web.sessions import listed
from refine.web.words import STATUSES, TRIGGERS, UNDONE

pages = Blueprint("comparing", __name__)

_COMPARED = 2

# So many sessions are offered to compare with.
_OFFERED = 20

_Value = Callable[[RefinementSession], object]

# What is compared, by group: each row's name and what it shows of a session.
_GROUPS: dict[str, dict[str, _Value]] = {
    "Request": {
        "Agent": lambda each: each.agent.name,
        "Outcome": lambda each: [STATUSES[each.status], *([UNDONE] if each.undone_at else [])],
        "Reason": lambda each: each.end_reason or "–",
        "Trigger": lambda each: TRIGGERS[each.trigger],
        "Attempt": lambda each: each.attempt,
        "Took": lambda each: seconds(each.duration) or "–",
    },
    "Settings": {
        "Model": lambda each: masked_id(each.model_id),
        "Retention threshold": lambda each: each.threshold.normalize(),
        "Prompt version": lambda each: each.prompt_version or "–",
    },
    "Ledger": {
        "Memories": lambda each: _change(each.memories_before, each.memories_after),
        "Tokens": lambda each: _change(each.mass_before, each.mass_after),
        "Shown to the agent": lambda each: number(each.shown_memories),
        "Could be removed": lambda each: number(each.removable_tokens),
        "Removed": lambda each: number(each.removed_tokens),
    },
    "Steps": {
        "Duplicates removed": lambda each: number(each.duplicates_removed),
        "Memories merged away": lambda each: number(each.stats["consolidated"]),
        "Memories rewritten": lambda each: number(each.stats["updated"]),
        "Memories discarded": lambda each: number(each.stats["deleted"]),
        "Memories protected": lambda each: number(each.stats["protected"]),
        "Details lost": lambda each: number(each.details_lost),
        "Tool calls": lambda each: number(each.tool_calls),
    },
    "Cost": {
        "Model calls": lambda each: number(each.llm_calls),
        "Prompt tokens": lambda each: number(each.prompt_tokens),
        "Cached prompt tokens": lambda each: number(each.cached_tokens),
        "Completion tokens": lambda each: number(each.completion_tokens),
        "Cost": lambda each: cost_in_words(each.cost_usd, each.unpriced_calls),
    },
}


class Row(NamedTuple):
    """One thing of both sessions."""

    name: str
    first: object
    second: object

    @property
    def are_badges(self) -> bool:
        return isinstance(self.first, list)

    @property
    def differs(self) -> bool:
        return self.first != self.second


@pages.get("/sessions/compare")
def page() -> ResponseReturnValue:
    """Show session ``b`` beside ``a``, or beside the one before it if the URL names no other.

    Two that were ticked in a list, each a ``session``, are shown so.
    """
    second = _chosen("b")
    if second is None:
        ticked = request.args.getlist("session")
        if len(ticked) == _COMPARED:
            newer, older = ticked
            return redirect(url_in_account("comparing.page", a=older, b=newer))
        flash("Tick two sessions to see them side by side.", "error")
        return redirect(url_in_account("sessions.listing"))
    first = _chosen("a") or _before(second)
    groups = _groups(first, second) if first is not None else {}
    return render_template(
        "sessions/compare.html",
        first=first,
        second=second,
        others=_others(second),
        groups=groups,
        differences=sum(row.differs for rows in groups.values() for row in rows),
    )


def _chosen(name: str) -> RefinementSession | None:
    """Return the session that the URL names, or 404."""
    if not (given := request.args.get(name)):
        return None
    try:
        return scope.session_or_404(uuid.UUID(given))
    except ValueError:
        abort(404)


def _before(session: RefinementSession) -> RefinementSession | None:
    is_earlier = RefinementSession.created_at < session.created_at
    newest_first = RefinementSession.created_at.desc()
    return db.session.scalar(
        select(RefinementSession)
        .where(RefinementSession.agent_id == session.agent_id, is_earlier)
        .order_by(newest_first)
        .limit(1)
    )


def _others(session: RefinementSession) -> list[tuple[uuid.UUID, str]]:
    """Return the agent's last other sessions, each with the words that a list shows."""
    is_other = RefinementSession.id != session.id
    others = listed(RefinementSession.agent_id == session.agent_id, is_other).limit(_OFFERED)
    return [
        (row.id, f"{minute(row.created_at)}: {STATUSES[row.status].word}")
        for row in db.session.execute(others)
    ]


def _groups(first: RefinementSession, second: RefinementSession) -> dict[str, list[Row]]:
    return {
        group: [Row(name, show(first), show(second)) for name, show in shown.items()]
        for group, shown in _GROUPS.items()
    }


def _change(before: int | None, after: int | None) -> str:
    return "–" if before is None else before_and_after(before, after)
