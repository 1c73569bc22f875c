"""Locking out a person, or an account, at once: all that they could still do ends."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, or_, select

from refine import clock
from refine.errors import InvalidValue, Refused
from refine.extensions import db
from refine.models.clients import ApiToken
from refine.models.outbox import Endpoint
from refine.models.people import Account, Invitation, SignIn, User
from refine.models.people.user import LOCK_REASONS, NO_PASSWORD
from refine.models.runs.access.grant import UNFINISHED, AccessGrant

Ended = Counter[str]


def lock(
    subject: User | Account, reason: str, by: User | None, *, ends_tokens: bool = False
) -> Ended:
    """Lock out a person, or everybody of an account but ``by``, who locks (nobody: the command
    line). Return how much ended; an account is paused, too. ``ends_tokens``: also all tokens of
    the account and its agents, and its webhooks. Refused, or InvalidValue.
    """
    if reason not in LOCK_REASONS:
        raise InvalidValue(f"reason must be one of {', '.join(LOCK_REASONS)}")
    if subject is by:
        raise Refused("you cannot lock yourself out: sign out everywhere instead")
    at, account, users = clock.now(), *_locked_rows(subject, by, User.active.is_(True))
    if subject.locked_at is not None:
        raise Refused("it is locked already")
    for user in users:
        if not user.log_if_altered():  # such a row opens nothing, and must not block the rest
            user.active, user.locked_at, user.lock_reason = False, at, reason
            if reason == "password_known" and user.password_hash is not None:
                user.password_hash = NO_PASSWORD
    theirs: ColumnElement[bool] = AccessGrant.user_id.in_([user.id for user in users])
    if isinstance(subject, Account):
        account.locked_at, account.paused = at, True
        theirs = or_(theirs, AccessGrant.account_id == account.id)
    ended = _end_in_agents(theirs, _tokens(account) if ends_tokens else [], by)
    for user in users:
        ended["links"] += Invitation.end_all_of(user, at) + Invitation.end_issued_by(user)
        ended["sign-ins"] += SignIn.end_all_of(user, at=at)
    for endpoint in Endpoint.active_of(account) if ends_tokens else ():
        endpoint.remove(by={"by": "lock"})
        ended["webhooks"] += 1
    _record(subject, "locked", by, reason=reason, users=len(users), **ended)
    return ended


def unlock(subject: User | Account, by: User | None) -> None:
    """Let a person in again, or those whom the account's lock locked out; what ended stays ended,
    and an account paused. Refused.
    """
    account, users = _locked_rows(subject, by, User.locked_at.is_not(None))
    if subject.locked_at is None:
        raise Refused("it is not locked")
    if subject is not account and account.locked_at is not None:
        raise Refused(f"{account.name} is locked: unlock the account")
    let_in = [user for user in users if user.locked_at == subject.locked_at and user.is_genuine]
    account.locked_at = None
    for user in let_in:
        user.active, user.locked_at, user.lock_reason = True, None, None
    _record(subject, "unlocked", by, users=len(let_in))


def _locked_rows(
    subject: User | Account, by: User | None, chosen: ColumnElement[bool]
) -> tuple[Account, Sequence[User]]:
    """Lock the account, then the ``chosen`` users and ``by`` in order of id; Refused."""
    account = subject if isinstance(subject, Account) else subject.account
    account.lock()
    if isinstance(subject, User):
        users = [subject]
    else:
        found = db.session.scalars(select(User).where(User.account_id == account.id, chosen))
        users = [user for user in found if user is not by and user.account_id == account.id]
    for each in sorted({*users, *([by] if by is not None else [])}, key=lambda user: user.id):
        each.lock()
    if by is not None:
        if (reason := by.inability_reason(account.id)) is not None:
            raise Refused(reason)
        if not by.site_admin and (subject is account or any(user.site_admin for user in users)):
            raise Refused("only a site admin can do that")
    return account, users


def _end_in_agents(
    theirs: ColumnElement[bool], tokens: Sequence[ApiToken], by: User | None
) -> Ended:
    """Agent by agent, tokens of the account last: in this order everybody locks chains."""
    ended = Counter({"grants": 0, "tokens": len(tokens), "links": 0, "sign-ins": 0})
    unfinished = select(AccessGrant).where(theirs, AccessGrant.status.in_(UNFINISHED))
    rows: list[Any] = [*db.session.scalars(unfinished), *tokens]
    for row in sorted(rows, key=lambda row: (row.agent_id is None, row.agent_id, str(row.id))):
        if isinstance(row, ApiToken):
            row.revoke(by)
        else:
            row.end_for_good("its user was locked out", by)
            ended["grants"] += 1
    return ended


def _tokens(account: Account) -> Sequence[ApiToken]:
    mine = ApiToken.account_id == account.id, ApiToken.revoked_at.is_(None)
    return db.session.scalars(select(ApiToken).where(*mine)).all()


def in_words(ended: Ended) -> str:
    return ", ".join(f"{number} {what}" for what, number in ended.items())


def _record(subject: User | Account, what: str, by: User | None, **figures: Any) -> None:
    account = subject if isinstance(subject, Account) else subject.account
    about, kind = {} if by is not None else {"by": "command line"}, type(subject).__name__
    named: Any = {"subject": subject, "data": {**figures, **about}}
    account.record(f"{kind.lower()}_{what}", user=by, **named)
