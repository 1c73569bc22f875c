"""Secrets that are shown once and looked up by their hash."""

import re

from refine.rules.secrets import hash_of, new_secret


def test_secrets_are_unique_texts_of_256_bits_that_fit_into_a_link() -> None:
    made = {new_secret() for _ in range(1_000)}

    assert len(made) == 1_000
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{43}", secret) for secret in made)


def test_hashes_are_sha_256() -> None:
    assert hash_of("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert hash_of("abc ") != hash_of("abc")
