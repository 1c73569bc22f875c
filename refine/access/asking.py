"""Asking an agent's own model whether a human may read; docs/architecture.md says what grants."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy import func, or_, select

from refine import prompts
from refine.extensions import agreed_now, db
from refine.llm.messages import Message, user_message
from refine.models import AccessGrant, Agent, AgentMemory, AuditLog, RefinementSession, User
from refine.models.agent import configuring
from refine.models.agent.configuring import CHANGE_HISTORY_WINDOW
from refine.models.ledger.image import images_in
from refine.models.runs.access.asking_rules import REASONS, AccessScope, AccessTerms
from refine.models.runs.access.grant import NO_LONGER_ALLOWED
from refine.models.runs.run import WORKER_STOPPED
from refine.models.runs.session.session import LOOP_EDITS
from refine.rules.consent import REASONING_TAG, only_in
from refine.rules.quantities import in_days
from refine.running import ModelWorker, RunEnded
from refine.running.model_calls import answer_to_question

ASKING_SECONDS = 240


@dataclass(frozen=True)
class Question:
    """What an agent is asked, word for word, and how much less than that it may grant."""

    text: str = field(repr=False)
    terms: AccessTerms
    this_session: uuid.UUID | None
    memory_ids: frozenset[int]

    @classmethod
    def about(
        cls, agent: Agent, user: User, terms: AccessTerms, *, request_id: uuid.UUID | None = None
    ) -> "Question":
        """Human words stand in a JSON line and pose as nothing."""
        at, scope = agreed_now(), terms.scope
        session, memories = _session_in(scope, agent), _memories_in(scope, agent)
        changed = _changed_by(session) if session is not None else []
        text = prompts.render(
            "access",
            today=f"{at:%Y-%m-%d}",
            duration_minutes=terms.duration_minutes,
            change_history=in_days(CHANGE_HISTORY_WINDOW),
            request=prompts.as_line(_request(agent, user, terms, at, request_id)),
            scope=scope,
            session=session and prompts.as_line(_of_session(session, changed)),
            memories=[_without_tags(prompts.as_entry(each.ledger_entry())) for each in memories],
        )
        named = changed if scope.session_id is not None else scope.memory_ids
        ids = _readable_ids(agent) if named is None else frozenset(named)
        return cls(text, terms, session.id if session is not None else None, ids)

    def less_in(self, reply: str | None) -> tuple[AccessScope, int] | None:
        """Return the scope and minutes to which a YES limits itself; None if it names no limits, or
        one that is not within what was asked.
        """
        if (only := only_in(reply)) is None:
            return None
        minutes, ids = self.terms.duration_minutes, self.terms.scope.memory_ids
        is_known = only.memory_ids is None or only.memory_ids <= self.memory_ids
        is_less = only.minutes is None or 0 < only.minutes <= minutes
        if not (is_known and is_less) or (only.this_session and self.this_session is None):
            return None
        session_id = self.this_session if only.this_session else self.terms.scope.session_id
        return AccessScope(session_id, only.memory_ids or ids), only.minutes or minutes


def _session_in(scope: AccessScope, agent: Agent) -> RefinementSession | None:
    """Return the session that "this session" means: of a request for everything, the last one."""
    if scope.session_id is None:
        return None if scope.is_narrow else RefinementSession.last_changing_of(agent)
    session = db.session.get_one(RefinementSession, scope.session_id)
    session.require_genuine(id=scope.session_id, agent_id=agent.id)
    return session


def _memories_in(scope: AccessScope, agent: Agent) -> Sequence[AgentMemory]:
    found = [db.session.get_one(AgentMemory, id_) for id_ in sorted(scope.memory_ids or ())]
    for memory in found:
        memory.require_genuine(agent_id=agent.id)
    return [memory for memory in found if not memory.is_erased]


def _readable_ids(agent: Agent) -> frozenset[int]:
    mine = AgentMemory.agent_id == agent.id, ~AgentMemory.is_erased
    return frozenset(db.session.scalars(select(AgentMemory.id).where(*mine)))


def _of_session(session: RefinementSession, memory_ids: list[int]) -> dict[str, Any]:
    return {
        "ended": f"{session.ended_at:%Y-%m-%d %H:%M} UTC",
        "outcome": session.status,
        "memories": memory_ids,
        "summary": _without_tags(session.summary or ""),
    }


def _changed_by(session: RefinementSession) -> list[int]:
    records = select(AuditLog.data).where(
        AuditLog.session_id == session.id,
        AuditLog.agent_id == session.agent_id,
        AuditLog.action.in_((*LOOP_EDITS, "memory_refinement_dedup")),
    )
    data = db.session.scalars(records)
    return sorted({memory["id"] for each in data for memory in images_in(each)})


def _request(
    agent: Agent, user: User, terms: AccessTerms, at: datetime, request_id: uuid.UUID | None
) -> dict[str, Any]:
    return {
        "who": user.email,
        "account": _without_tags(user.account.name),
        "why": REASONS[terms.reason],
        "minutes": terms.duration_minutes,
        "purpose": _without_tags(terms.purpose),
        "agent": _without_tags(agent.name),
        "changes": configuring.changes_by_others(agent, at),
        "asked_before": _recent_requests(agent, at, except_for=request_id),
    }


def _recent_requests(agent: Agent, at: datetime, except_for: uuid.UUID | None) -> dict[str, int]:
    requested = AuditLog.action == "memory_access_requested"
    declined = AuditLog.action == "memory_access_declined"
    counts = select(
        func.count().filter(requested).label("requests"),
        func.count(AuditLog.user_id.distinct()).filter(requested).label("users"),
        func.count().filter(declined).label("declined"),
    ).where(
        AuditLog.agent_id == agent.id,
        or_(requested, declined),
        AuditLog.auditable_id != str(except_for),
        AuditLog.created_at > at - CHANGE_HISTORY_WINDOW,
    )
    return dict(db.session.execute(counts).one()._mapping)


def _without_tags(typed: str) -> str:
    return REASONING_TAG.sub("(tag)", typed)


class AccessWorker(ModelWorker[AccessGrant]):
    """Works on one access request; any failure ends it without a grant."""

    _kind = AccessGrant
    _own_max_seconds = ASKING_SECONDS

    def _work(self) -> None:
        with self._connected():
            asked = self._committed(lambda: self._question(self._run))
            reply, agreed = answer_to_question(
                self._ask_model, self._messages, lambda text: asked.less_in(text) is not None
            )
        scope, minutes = asked.less_in(reply.text) or (None, None)

        def settle() -> None:
            self._held().settle(
                reply.text,
                agreed=agreed,
                generation_id=reply.generation_id,
                scope=scope,
                minutes=minutes,
            )

        self._committed(settle)

    def _question(self, grant: AccessGrant) -> Question:
        agent = grant.agent
        grant.require_own("agent", "user", "account")  # the rows that the question quotes
        terms = AccessTerms(grant.reason, grant.purpose or "", grant.duration_minutes, grant.scope)
        asked = Question.about(agent, grant.user, terms, request_id=grant.id)
        system: Message = {"role": "system", "content": agent.system_message}
        self._messages = [system, user_message(asked.text)]
        return asked

    def _hand_back(self, run: AccessGrant, reason: str) -> None:
        """Leave it to another worker; after an unclear answer, nobody asks for a clearer one."""
        if any(each["role"] == "assistant" for each in self._messages):
            run.give_up(reason, WORKER_STOPPED)
        else:
            run.hand_back(reason)

    def _unavailable(self, reason: str) -> RunEnded:
        return RunEnded(None, reason, NO_LONGER_ALLOWED)


run_access_request = AccessWorker.work_on
