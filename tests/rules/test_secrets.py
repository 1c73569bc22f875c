"""Secrets that are shown once and looked up by their hash."""

import re

from refine.rules.secrets import hash_of, new_secret


def test_no_secret_is_made_twice() -> None:
    assert len({new_secret() for _ in range(1_000)}) == 1_000


def test_a_secret_has_256_bits_and_fits_into_a_link() -> None:
    secret = new_secret()

    assert re.fullmatch(r"[A-Za-z0-9_-]{43}", secret)


def test_a_hash_is_always_the_same_and_tells_nothing_of_the_secret() -> None:
    secret = new_secret()

    assert hash_of(secret) == hash_of(secret)
    assert re.fullmatch(r"[0-9a-f]{64}", hash_of(secret))
    assert hash_of(secret) != hash_of(secret + " ")
    assert hash_of("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
