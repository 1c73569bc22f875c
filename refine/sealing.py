"""Encryption at rest and keyed hashes: the one door to memory content.

Three layers. Every agent has a random data key, and the platform one more for its audit chains;
prompts, summaries and keyed hashes depend on those. A data key is stored wrapped by the first of
REFINE_ENCRYPTION_KEYS, so rotation re-wraps small rows and touches no record, and destroying a
data key erases everything sealed with it. Every memory has a content key, stored wrapped by its
agent's data key; destroying it erases the memory, and what records tell of its text.

Sealed bytes: version (1 byte), nonce (12), AES-256-GCM ciphertext with its tag. Column and row are
authenticated too, and a wrapped key holds the name of its owner: bytes or keys that were moved
elsewhere cannot be opened.
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

_VERSION = b"\x01"
_NONCE_BYTES = 12
_KEY_BYTES = 32


class Place(NamedTuple):
    column: str
    """Table and column, such as ``agent_memories.content``."""
    row: object
    """The primary key of the row."""

    def __str__(self) -> str:
        return f"{self.column} of row {self.row}"


class ContentKey:
    """Seals and opens texts under one random key of 32 bytes."""

    def __init__(self, secret: bytes) -> None:
        self._cipher = AESGCM(secret)

    def seal(self, text: str, place: Place) -> bytes:
        return self._encrypt(text.encode(), place)

    def open(self, sealed: bytes, place: Place) -> str:
        """Return the text; raise SealingError if the key, the place or the bytes do not match."""
        return self._decrypt(sealed, place).decode()

    def _encrypt(self, plain: bytes, place: Place) -> bytes:
        nonce = secrets.token_bytes(_NONCE_BYTES)
        return _VERSION + nonce + self._cipher.encrypt(nonce, plain, str(place).encode())

    def _decrypt(self, sealed: bytes, place: Place) -> bytes:
        version, nonce, body = sealed[:1], sealed[1 : _NONCE_BYTES + 1], sealed[_NONCE_BYTES + 1 :]
        try:
            if version != _VERSION:
                raise InvalidTag
            return self._cipher.decrypt(nonce, body, str(place).encode())
        except (InvalidTag, ValueError):
            raise SealingError(f"{place} cannot be opened: it was altered or moved") from None


class DataKey(ContentKey):
    """Also makes keyed hashes, and wraps content keys."""

    def __init__(self, secret: bytes) -> None:
        super().__init__(_derive(secret, b"seal"))
        self._mac = HMAC(_derive(secret, b"mac"), SHA256())

    def wrap_new(self, place: Place) -> bytes:
        """Return a new content key, wrapped for its place."""
        return self._encrypt(secrets.token_bytes(_KEY_BYTES), place)

    def unwrap(self, wrapped: bytes, place: Place) -> ContentKey:
        return ContentKey(self._decrypt(wrapped, place))

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
        return frozenset(self._fernets)

    def wrap_new(self, owner: str) -> bytes:
        return self._fernets[self.primary].encrypt(secrets.token_bytes(_KEY_BYTES) + owner.encode())

    def unwrap(self, wrapped: bytes, wrapped_by: str, owner: str) -> DataKey:
        """Return the owner's data key; WrongKey, or SealingError if it is another owner's."""
        return _unwrapped(self._fernet(wrapped_by), wrapped, owner)

    def rewrap(self, wrapped: bytes, wrapped_by: str) -> bytes:
        return self._fernets[self.primary].encrypt(_decrypt(self._fernet(wrapped_by), wrapped))

    def _fernet(self, fingerprint: str) -> Fernet:
        if fingerprint not in self._fernets:
            raise missing_key(fingerprint)
        return self._fernets[fingerprint]


def missing_key(*fingerprints: str) -> WrongKey:
    return WrongKey(
        "REFINE_ENCRYPTION_KEYS does not hold the key that this database was sealed with "
        f"(fingerprint {', '.join(fingerprints)}); add it back. Nothing was written"
    )


def keyring() -> Keyring:
    return cast(Keyring, current_app.extensions["refine.keyring"])


@lru_cache(maxsize=1024)
def _unwrapped(fernet: Fernet, wrapped: bytes, owner: str) -> DataKey:
    unwrapped = _decrypt(fernet, wrapped)
    if unwrapped[_KEY_BYTES:] != owner.encode():
        raise SealingError(f"the wrapped data key does not belong to {owner}: it was moved")
    return DataKey(unwrapped[:_KEY_BYTES])


def _decrypt(fernet: Fernet, wrapped: bytes) -> bytes:
    try:
        return fernet.decrypt(wrapped)
    except InvalidToken:
        raise SealingError("a wrapped data key was altered; restore it from a backup") from None


def _derive(secret: bytes, purpose: bytes) -> bytes:
    return HKDF(SHA256(), length=_KEY_BYTES, salt=None, info=b"refine/" + purpose).derive(secret)


def _fingerprint(key: str) -> str:
    return hashlib.sha256(b"refine/fingerprint\x00" + key.encode()).hexdigest()[:16]
