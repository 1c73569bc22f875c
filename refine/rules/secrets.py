"""Secrets that are shown once and looked up by their hash."""

import hashlib
import secrets

_RANDOM_BYTES = 32


def new_secret() -> str:
    """Return a random text of 256 bits, fit for a link or a cookie."""
    return secrets.token_urlsafe(_RANDOM_BYTES)


def hash_of(secret: str) -> str:
    """Return the hash under which a secret is kept.

    For secrets that are random: they need no slow hash. Passwords do.
    """
    return hashlib.sha256(secret.encode()).hexdigest()
