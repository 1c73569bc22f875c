"""Asking an agent's own model whether a human may read; docs/architecture.md says what grants."""

import uuid
from datetime import datetime

from sqlalchemy import func, or_, select

from refine import prompts
from refine.extensions import agreed_now, db
from refine.llm.messages import Message, user_message
from refine.models import AccessGrant, Agent, AuditLog, User
from refine.models.agent import configuring
from refine.models.agent.configuring import CHANGE_HISTORY_WINDOW
from refine.models.runs.access import NO_LONGER_ALLOWED, REASONS, AccessTerms
from refine.rules.consent import REASONING_TAG
from refine.rules.quantities import in_days
from refine.running import ModelWorker, RunEnded
from refine.running.model_calls import answer_to_question

ASKING_SECONDS = 240


def question(
    agent: Agent,
    user: User,
    terms: AccessTerms,
    *,
    request_id: uuid.UUID | None = None,
) -> str:
    """Return the question, word for word; human words stand in a JSON line and pose as nothing."""
    at = agreed_now()
    request = prompts.as_line(
        {
            "who": user.email,
            "account": _without_tags(user.account.name),
            "why": REASONS[terms.reason],
            "minutes": terms.duration_minutes,
            "purpose": _without_tags(terms.purpose),
            "agent": _without_tags(agent.name),
            "changes": configuring.changes_by_others(agent, at),
            "asked_before": _recent_requests(agent, at, except_for=request_id),
        }
    )
    return prompts.render(
        "access",
        today=f"{at:%Y-%m-%d}",
        duration_minutes=terms.duration_minutes,
        change_history=in_days(CHANGE_HISTORY_WINDOW),
        request=request,
    )


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
            self._messages = self._committed(lambda: _opening(self._run))
            reply, agreed = answer_to_question(self._ask_model, self._messages)

        def settle() -> None:
            self._held().settle(reply.text, agreed=agreed, generation_id=reply.generation_id)

        self._committed(settle)

    def _unavailable(self, reason: str) -> RunEnded:
        return RunEnded(None, reason, NO_LONGER_ALLOWED)


def _opening(grant: AccessGrant) -> list[Message]:
    agent = grant.agent
    grant.require_own("agent", "user", "account")  # the rows that the question quotes
    terms = AccessTerms(grant.reason, grant.purpose or "", grant.duration_minutes)
    return [
        {"role": "system", "content": agent.system_message},
        user_message(question(agent, grant.user, terms, request_id=grant.id)),
    ]


run_access_request = AccessWorker.work_on
