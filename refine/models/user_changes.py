"""Changes of what a user may do, with all that they end. The user is locked before."""

from collections.abc import Mapping

from refine.models.columns import set_fields
from refine.models.people import Invitation, SecondFactor, SignIn, User
from refine.models.runs.access.grant import AccessGrant


def change_rights(
    user: User,
    rights: Mapping[str, object],
    *,
    by: User | None = None,
    about: Mapping[str, str] | None = None,
) -> None:
    """Set ``role``, ``active`` or both; a record, with ``about``, if that changes anything."""
    changed = set_fields(user, rights)
    if not changed:
        return
    if not (user.active and user.may_act):
        AccessGrant.end_all_of(user, by=by)  # it locks agents: before any record
        Invitation.end_issued_by(user)
    if not user.active:
        Invitation.end_all_of(user)
    if not user.active or ("role" in changed and user.may_act):
        SignIn.end_all_of(user)  # a copied cookie does not rise with its user
    data = {"role": user.role, "active": user.active, **(about or {})}
    user.record("user_updated", by=by, data=data)


def reset_second_factors(user: User, *, by: User | None = None) -> None:
    AccessGrant.end_all_of(user, by=by)  # it locks agents: before any record
    SecondFactor.reset(user, by=by)
