"""What version 1 left behind: sealed text bound to its column alone, and keys bound to nobody."""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from sqlalchemy import select

from refine.extensions import db
from refine.models import Agent, WrappedKey
from refine.sealing import DataKey, Keyring, Place


@contextmanager
def sealing_as_version_1() -> Iterator[None]:
    """What is written in this block is sealed as version 1 did; call ``forget_binding`` after."""

    def seal(key: DataKey, text: str, place: Place) -> bytes:
        nonce = secrets.token_bytes(12)
        return b"\x01" + nonce + key._cipher.encrypt(nonce, text.encode(), place.column.encode())

    def wrap(ring: Keyring, secret: bytes, owner: str) -> bytes:
        return ring._fernets[ring.primary].encrypt(secret)

    open_bound = WrappedKey.open

    def open_unbound(key: WrappedKey, owner: str, *, allow_unbound: bool = True) -> DataKey:
        return open_bound(key, owner, allow_unbound=True)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DataKey, "seal", seal)
        patch.setattr(Keyring, "_wrap", wrap)
        patch.setattr(WrappedKey, "open", open_unbound)
        yield


def forget_binding() -> None:
    """Mark every agent as the migration does, and the upgrade attests them so."""
    for agent in db.session.scalars(select(Agent)).all():
        agent.is_bound = False
    db.session.commit()
