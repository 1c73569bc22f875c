"""Encryption at rest: sealed text only opens with its own key and context."""

import pytest
from cryptography.fernet import Fernet
from flask import Flask
from hypothesis import given
from hypothesis import strategies as st

from refine.errors import SealingError, WrongKey
from refine.sealing import DataKey, Keyring, keyring

CONTEXT = "agent_memories.content"
KEY = DataKey(b"k" * 32)
OTHER_KEY = DataKey(b"o" * 32)

texts = st.text(st.characters(exclude_categories=["Cs"]))


def fresh() -> str:
    return Fernet.generate_key().decode()


@given(texts, st.text(st.characters(exclude_categories=["Cs"])))
def test_sealed_text_opens_unchanged(text: str, context: str) -> None:
    assert KEY.open(KEY.seal(text, context), context) == text


def test_a_key_of_the_same_secret_opens_it() -> None:
    assert DataKey(b"k" * 32).open(KEY.seal("a memory", CONTEXT), CONTEXT) == "a memory"


def test_sealed_text_is_hidden_and_differs_each_time() -> None:
    assert KEY.seal("a memory", CONTEXT) != KEY.seal("a memory", CONTEXT)
    assert b"canary" not in KEY.seal("canary" * 10, CONTEXT)


def test_another_key_or_context_opens_nothing() -> None:
    sealed = KEY.seal("a memory", CONTEXT)

    for key, context in (
        *((OTHER_KEY, CONTEXT), (KEY, "agent_memories.extra"), (KEY, "")),
        (KEY, CONTEXT + "\x00"),
    ):
        with pytest.raises(SealingError, match="altered or moved"):
            key.open(sealed, context)


def test_every_altered_missing_or_added_byte_is_detected() -> None:
    sealed = KEY.seal("a memory", CONTEXT)
    flipped = [
        bytes([*sealed[:at], sealed[at] ^ bit, *sealed[at + 1 :]])
        for at in range(len(sealed))
        for bit in (0x01, 0x80)
    ]
    cut = [sealed[:length] for length in range(len(sealed))]

    for damaged in (*flipped, *cut, sealed + b"\x00"):
        with pytest.raises(SealingError):
            KEY.open(damaged, CONTEXT)


@given(st.binary(max_size=80))
def test_random_bytes_open_to_nothing(noise: bytes) -> None:
    with pytest.raises(SealingError):
        KEY.open(noise, CONTEXT)


def test_the_error_names_the_context_and_not_the_text() -> None:
    sealed = KEY.seal("canary", CONTEXT)

    with pytest.raises(SealingError) as error:
        KEY.open(sealed[:-1], CONTEXT)

    assert CONTEXT in str(error.value)
    assert "canary" not in str(error.value)


def test_the_keyed_hash_depends_on_key_text_and_context() -> None:
    mac = KEY.mac("a memory", CONTEXT)

    assert mac == DataKey(b"k" * 32).mac("a memory", CONTEXT)
    assert len(bytes.fromhex(mac)) == 32
    for key, text, context in (
        (OTHER_KEY, "a memory", CONTEXT),
        (KEY, "a memory.", CONTEXT),
        (KEY, "a memory", "agent_memories.extra"),
        (KEY, "ta memory", CONTEXT[:-1]),
    ):
        assert key.mac(text, context) != mac, (text, context)


def test_a_wrapped_data_key_can_be_unwrapped() -> None:
    ring = Keyring([fresh()])
    wrapped = ring.wrap_new()

    sealed = ring.unwrap(wrapped, ring.primary).seal("a memory", CONTEXT)

    assert ring.unwrap(wrapped, ring.primary).open(sealed, CONTEXT) == "a memory"


def test_new_data_keys_differ() -> None:
    ring = Keyring([fresh()])

    hashes = {ring.unwrap(ring.wrap_new(), ring.primary).mac("a memory", CONTEXT) for _ in range(3)}

    assert len(hashes) == 3


def test_the_first_key_wraps() -> None:
    first, second = fresh(), fresh()

    wrapped = Keyring([first, second]).wrap_new()

    assert Keyring([first]).unwrap(wrapped, Keyring([first]).primary)
    with pytest.raises(SealingError):
        Keyring([second]).unwrap(wrapped, Keyring([second]).primary)


def test_every_key_of_the_ring_unwraps() -> None:
    old, new = fresh(), fresh()
    before = Keyring([old])
    wrapped = before.wrap_new()
    sealed = before.unwrap(wrapped, before.primary).seal("a memory", CONTEXT)

    after = Keyring([new, old])

    assert after.unwrap(wrapped, before.primary).open(sealed, CONTEXT) == "a memory"


def test_rewrapping_moves_a_data_key_to_the_first_key() -> None:
    old, new = fresh(), fresh()
    before, after = Keyring([old]), Keyring([new])
    wrapped = before.wrap_new()
    sealed = before.unwrap(wrapped, before.primary).seal("a memory", CONTEXT)

    rewrapped = Keyring([new, old]).rewrap(wrapped, before.primary)

    assert after.unwrap(rewrapped, after.primary).open(sealed, CONTEXT) == "a memory"


def test_fingerprints_identify_the_keys() -> None:
    first, second = fresh(), fresh()

    ring = Keyring([first, second])

    assert ring.primary == Keyring([first]).primary
    assert ring.fingerprints == {Keyring([first]).primary, Keyring([second]).primary}


def test_a_fingerprint_does_not_reveal_its_key() -> None:
    key = fresh()

    fingerprint = Keyring([key]).primary

    assert len(fingerprint) == 16
    assert fingerprint not in key


@pytest.mark.parametrize("verb", ["unwrap", "rewrap"])
def test_an_unknown_wrapping_key_is_a_wrong_key(verb: str) -> None:
    lost, key = Keyring([fresh()]), fresh()
    wrapped = lost.wrap_new()

    with pytest.raises(WrongKey, match=lost.primary) as error:
        getattr(Keyring([key]), verb)(wrapped, lost.primary)

    assert key not in str(error.value)


@pytest.mark.parametrize("verb", ["unwrap", "rewrap"])
@pytest.mark.parametrize("wrapped", [b"", b"canary", b"\x00" * 100])
def test_an_altered_data_key_is_damage_and_not_a_wrong_key(verb: str, wrapped: bytes) -> None:
    key = fresh()
    ring = Keyring([key])

    with pytest.raises(SealingError, match="restore it from a backup") as error:
        getattr(ring, verb)(wrapped, ring.primary)

    assert not isinstance(error.value, WrongKey)
    assert "canary" not in str(error.value)
    assert key not in str(error.value)


def test_the_application_holds_the_keyring_of_its_settings() -> None:
    app, ring = Flask(__name__), Keyring([fresh()])
    app.extensions["refine.keyring"] = ring

    with app.app_context():
        held = keyring()

    assert held is ring
