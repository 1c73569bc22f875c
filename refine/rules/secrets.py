"""Secrets that are shown once and looked up by their hash."""

import hashlib
import secrets

_RANDOM_BYTES = 32


def new_secret() -> str:
    """Return 256 random bits as text that fits into a link or a cookie."""
    return secrets.token_urlsafe(_RANDOM_BYTES)


def hash_of(secret: str) -> str:
    """Return the hash under which a secret is kept.

    Only for random secrets, which need no slow hash; passwords do.
    """
    return hashlib.sha256(secret.encode()).hexdigest()
