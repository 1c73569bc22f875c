"""Encryption at rest and keyed hashes: the one door to memory content.

Two layers. Every agent has a random data key, and the platform one more for its audit chains;
contents and keyed hashes depend on those. A data key is stored wrapped by the first of
REFINE_ENCRYPTION_KEYS, so rotation re-wraps small rows and touches no record, and destroying a
data key erases everything sealed with it.

Sealed bytes: version (1 byte), nonce (12), AES-256-GCM ciphertext with its tag. Column and row are
authenticated too, and a wrapped key holds the name of its owner: bytes or keys that were moved
elsewhere cannot be opened. What version 1 sealed is bound to its column alone, and its wrapped keys
to nobody; ``refine db upgrade`` binds both (``refine.models.resealing``).
"""

import hashlib
import secrets
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple, cast

from cryptography.exceptions import InvalidTag
from cryptography.fernet import Fernet, InvalidToken
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.hmac import HMAC
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from flask import current_app

from refine.errors import SealingError, WrongKey

# The first byte of what version 1 sealed, and of what is sealed now.
UNBOUND, _BOUND = b"\x01", b"\x02"
_NONCE_BYTES = 12
_KEY_BYTES = 32


class Place(NamedTuple):
    """Where sealed bytes are stored; they open nowhere else."""

    column: str
    """Table and column, such as ``agent_memories.content``."""
    row: object
    """The primary key of the row."""

    def __str__(self) -> str:
        return f"{self.column} of row {self.row}"


class DataKey:
    """Seals and opens texts, and makes keyed hashes, under one random key of 32 bytes.

    ``opens_unbound``: whether it opens what version 1 sealed.
    """

    def __init__(self, secret: bytes, *, opens_unbound: bool = False) -> None:
        self._cipher = AESGCM(_derive(secret, b"seal"))
        self._mac = HMAC(_derive(secret, b"mac"), SHA256())
        self.opens_unbound = opens_unbound

    def seal(self, text: str, place: Place) -> bytes:
        """Return ``text`` encrypted for ``place``; two sealings of one text differ."""
        nonce = secrets.token_bytes(_NONCE_BYTES)
        return _BOUND + nonce + self._cipher.encrypt(nonce, text.encode(), str(place).encode())

    def open(self, sealed: bytes, place: Place, *, allow_unbound: bool = False) -> str:
        """Return the text; raise SealingError if the key, the place or the bytes do not match.

        ``allow_unbound``: the caller has made sure that bytes of version 1 are where they belong.
        """
        version, nonce, body = sealed[:1], sealed[1 : _NONCE_BYTES + 1], sealed[_NONCE_BYTES + 1 :]
        bound_to = {_BOUND: str(place)}
        if self.opens_unbound or allow_unbound:
            bound_to[UNBOUND] = place.column
        try:
            if version not in bound_to:
                raise InvalidTag
            return self._cipher.decrypt(nonce, body, bound_to[version].encode()).decode()
        except (InvalidTag, ValueError):
            raise SealingError(f"{place} cannot be opened: it was altered or moved") from None

    def mac(self, text: str, context: str) -> str:
        """Return the keyed hash (HMAC-SHA-256, hexadecimal) of ``text`` for ``context``."""
        keyed = self._mac.copy()  # takes less than preparing the key again
        keyed.update(f"{context}\x00{text}".encode())
        return keyed.finalize().hex()


class Keyring:
    """The keys of REFINE_ENCRYPTION_KEYS: the first wraps, all unwrap."""

    def __init__(self, keys: Sequence[str]) -> None:
        self._fernets = {_fingerprint(key): Fernet(key) for key in keys}
        self.primary = next(iter(self._fernets))

    @property
    def fingerprints(self) -> frozenset[str]:
        """The names by which a wrapped key refers to the key that wrapped it."""
        return frozenset(self._fernets)

    def wrap_new(self, owner: str) -> bytes:
        """Return a fresh data key for this owner, wrapped by the primary key."""
        return self._wrap(secrets.token_bytes(_KEY_BYTES), owner)

    def unwrap(
        self, wrapped: bytes, wrapped_by: str, owner: str, *, allow_unbound: bool = False
    ) -> DataKey:
        """Return the data key of this owner.

        WrongKey if the key that wrapped it is not in the ring; SealingError if it is another
        owner's, or bound to none and that is not allowed.
        """
        return _unwrapped(self._fernet(wrapped_by), wrapped, owner, allow_unbound)

    def rewrap(self, wrapped: bytes, wrapped_by: str) -> bytes:
        """Return the same data key, of the same owner, wrapped by the primary key."""
        return self._fernets[self.primary].encrypt(_decrypt(self._fernet(wrapped_by), wrapped))

    def bind(self, wrapped: bytes, wrapped_by: str, owner: str) -> bytes:
        """Return a data key that version 1 wrapped, bound to this owner."""
        secret, _ = _split(_decrypt(self._fernet(wrapped_by), wrapped))
        return self._wrap(secret, owner)

    def _wrap(self, secret: bytes, owner: str) -> bytes:
        return self._fernets[self.primary].encrypt(secret + owner.encode())

    def _fernet(self, fingerprint: str) -> Fernet:
        if fingerprint not in self._fernets:
            raise missing_key(fingerprint)
        return self._fernets[fingerprint]


def missing_key(*fingerprints: str) -> WrongKey:
    """Return the error that the keyring lacks the keys with these fingerprints."""
    return WrongKey(
        "REFINE_ENCRYPTION_KEYS does not hold the key that this database was sealed with "
        f"(fingerprint {', '.join(fingerprints)}); add it back. Nothing was written"
    )


def keyring() -> Keyring:
    """Return the keyring of the application whose context is active."""
    return cast(Keyring, current_app.extensions["refine.keyring"])


def is_unbound(sealed: bytes | None) -> bool:
    """Whether version 1 sealed these bytes, so that they are bound to no row."""
    return sealed is not None and sealed[:1] == UNBOUND


@lru_cache(maxsize=1024)
def _unwrapped(fernet: Fernet, wrapped: bytes, owner: str, allow_unbound: bool) -> DataKey:
    secret, bound_to = _split(_decrypt(fernet, wrapped))
    if bound_to or not allow_unbound:
        _require_owner(bound_to, owner)
    return DataKey(secret, opens_unbound=not bound_to)


def _split(unwrapped: bytes) -> tuple[bytes, str]:
    """Return the secret, and the owner to whom it is bound; empty in version 1."""
    return unwrapped[:_KEY_BYTES], unwrapped[_KEY_BYTES:].decode()


def _require_owner(bound_to: str, owner: str) -> None:
    if bound_to != owner:
        raise SealingError(f"the wrapped data key does not belong to {owner}: it was moved")


def _decrypt(fernet: Fernet, wrapped: bytes) -> bytes:
    try:
        return fernet.decrypt(wrapped)
    except InvalidToken:
        raise SealingError("a wrapped data key was altered; restore it from a backup") from None


def _derive(secret: bytes, purpose: bytes) -> bytes:
    return HKDF(SHA256(), length=_KEY_BYTES, salt=None, info=b"refine/" + purpose).derive(secret)


def _fingerprint(key: str) -> str:
    return hashlib.sha256(b"refine/fingerprint\x00" + key.encode()).hexdigest()[:16]
