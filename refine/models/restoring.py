"""What a restore ends: a backup knows nothing of what was revoked, changed or done after it."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sqlalchemy import or_, select

from refine.extensions import db
from refine.models import agent_erasure, erasing
from refine.models.agent import Agent
from refine.models.audit import PLATFORM, AuditLog
from refine.models.clients import ApiToken
from refine.models.columns import in_ids
from refine.models.ledger.memory import AgentMemory
from refine.models.mail import Mail
from refine.models.outbox import Endpoint
from refine.models.people import Account, Invitation, SignIn, User
from refine.models.people.second_factor import SecondFactor
from refine.models.people.user import NO_PASSWORD
from refine.models.runs.access.grant import UNFINISHED, AccessGrant
from refine.models.runs.run import WORKER_LOST
from refine.models.runs.session.session import RefinementSession
from refine.models.runs.task import MemoryTask

_BY = {"by": "restore"}
_WHY = "the database was restored from a backup"


def _end_factor(factor: SecondFactor) -> None:
    """With it, all that its user has."""
    if factor.ended_at is None and not factor.user.log_if_altered():
        SecondFactor.reset(factor.user)


def _end_password(user: User) -> None:
    if not user.log_if_altered():
        user.password_hash, user.identity_hash = NO_PASSWORD, None
    user.record("user_password_ended", data=_BY)


def _end_session(session: RefinementSession) -> None:
    """End a queued one as if somebody had stopped it."""
    if session.log_if_altered():
        return
    if session.is_running:
        session.give_up(_WHY, WORKER_LOST)
    else:
        session.finish(session.stopped_status, _WHY)


def _drop_mail(mail: Mail) -> None:
    mail.next_at, mail.last_status = None, "restored"


def _call_off(agent: Agent) -> None:
    if not agent.is_unusable:
        agent_erasure.call_off(agent)


def _forget_sweep(account: Account) -> None:
    if not account.log_if_altered():
        account.sweep_requested_at = None


# In this order: the rows of a kind, and how one of them ends. Altered rows grant nothing, and stay.
ENDS: Mapping[str, tuple[Any, Any, Callable[[Any], object]]] = {
    "sign-ins": (SignIn, SignIn.ended_at.is_(None), SignIn.end),
    "links for passwords": (
        *(Invitation, Invitation.used_at.is_(None)),
        lambda link: Invitation.end_all_of(link.user),
    ),
    "second factors": (SecondFactor, SecondFactor.ended_at.is_(None), _end_factor),
    "passwords": (
        *(User, or_(User.password_hash != NO_PASSWORD, User.identity_hash.is_not(None))),
        _end_password,
    ),
    "tokens": (ApiToken, ApiToken.revoked_at.is_(None), ApiToken.revoke),
    "access to memories": (
        *(AccessGrant, AccessGrant.status.in_(UNFINISHED)),
        lambda grant: grant.end_for_good(_WHY, None),
    ),
    "webhooks": (Endpoint, Endpoint.removed_at.is_(None), lambda each: each.remove(by=_BY)),
    "mails that waited": (Mail, Mail.next_at.is_not(None), _drop_mail),
    "sessions": (RefinementSession, RefinementSession.is_live, _end_session),
    "attempts at memory tasks": (
        *(MemoryTask, MemoryTask.is_held),
        lambda task: task.give_up(_WHY, WORKER_LOST),
    ),
    "erasures of agents that were asked for": (Agent, Agent.erase_at.is_not(None), _call_off),
    "sweeps": (Account, Account.sweep_requested_at.is_not(None), _forget_sweep),
}


def end_all(made_at: str) -> dict[str, int]:
    """End whatever lets somebody in, or would happen a second time; tell the agents. Return how
    many of each kind ended. ``made_at``: when the backup was made.
    """
    ended = {words: _each(*about) for words, about in ENDS.items()}
    note = f"My memories were restored from a backup of {made_at}: what I kept after that is lost."
    _each(Agent, Agent.active, lambda agent: _tell(agent, note))
    return {words: count for words, count in ended.items() if count}


def erase_again(anchored: dict[str, Any]) -> dict[str, int]:
    """Erase what an anchor taken after the backup lists as erased; return how many of each."""
    ids, memories, left = anchored["erased"], 0, 0
    agents = [each for each in _agents(ids["agents"]) if not each.is_erased]
    for agent in agents:
        agent.erase(by=_BY["by"])
    mine = select(AgentMemory.agent_id).where(in_ids(AgentMemory.id, ids["memories"])).distinct()
    for agent in _agents(db.session.scalars(mine).all()):
        if not agent.is_erased:
            gone, kept = erasing.erase_again(agent, ids["memories"])
            memories, left = memories + gone, left + kept
    done = {
        "agents": len(agents),
        "memories": memories,
        "constitutional memories, which stay": left,
    }
    return {words: count for words, count in done.items() if count}


def _agents(ids: Sequence[int]) -> Sequence[Agent]:
    return db.session.scalars(select(Agent).where(in_ids(Agent.id, ids)).order_by(Agent.id)).all()


def note_restored(made_at: str, ended: Mapping[str, int], *, is_complete: bool) -> None:
    data = {"made_at": made_at, "is_complete": is_complete, "ended": dict(ended)}
    AuditLog.record("database_restored", chain=PLATFORM, data=data)


def _tell(agent: Agent, note: str) -> None:
    if not agent.is_unusable:
        agent.ledger.add_journal_note(note)


def _each(kind: Any, chosen: Any, act: Callable[[Any], object]) -> int:
    ids = db.session.scalars(select(kind.id).where(chosen).order_by(kind.id)).all()
    for id_ in ids:
        act(db.session.get_one(kind, id_))
        db.session.flush()
    return len(ids)
