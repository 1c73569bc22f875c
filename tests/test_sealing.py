"""Encryption at rest: sealed text only opens with its own key and context."""

import hashlib
import hmac

import pytest
from cryptography.fernet import Fernet
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from hypothesis import given, strategies as st

from refine.errors import SealingError, WrongKey
from refine.sealing import DataKey, Keyring, Place

PLACE = Place("agent_memories.content", 7)
CONTEXT = "agent_memories.content_hash"
OWNER = "agent 7"
KEY = DataKey(b"k" * 32)
OTHER_KEY = DataKey(b"o" * 32)

texts = st.text(st.characters(exclude_categories=["Cs"]))


def fresh() -> str:
    return Fernet.generate_key().decode()


@given(texts, texts, st.integers())
def test_sealed_text_opens_unchanged(text, column, row):
    assert KEY.open(KEY.seal(text, Place(column, row)), Place(column, row)) == text


def test_sealed_text_is_hidden_and_differs_each_time():
    assert KEY.seal("a memory", PLACE) != KEY.seal("a memory", PLACE)
    assert b"canary" not in KEY.seal("canary" * 10, PLACE)


@pytest.mark.parametrize(
    ("key", "place"),
    [
        (OTHER_KEY, PLACE),
        (KEY, PLACE._replace(row=8)),
        (KEY, PLACE._replace(row=None)),
        (KEY, PLACE._replace(column="agent_memories.extra")),
        (KEY, Place("", "")),
    ],
)
def test_another_key_row_or_column_opens_nothing(key, place):
    sealed = KEY.seal("a memory", PLACE)

    with pytest.raises(SealingError, match="altered or moved"):
        key.open(sealed, place)


def test_every_altered_missing_or_added_byte_is_detected():
    sealed = KEY.seal("a memory", PLACE)
    flipped = [
        bytes([*sealed[:at], sealed[at] ^ bit, *sealed[at + 1 :]])
        for at in range(len(sealed))
        for bit in (0x01, 0x80)
    ]
    cut = [sealed[:length] for length in range(len(sealed))]

    for damaged in (*flipped, *cut, sealed + b"\x00"):
        with pytest.raises(SealingError) as error:
            KEY.open(damaged, PLACE)
        assert str(PLACE) in str(error.value)
        assert "a memory" not in str(error.value)


@given(st.binary(min_size=32, max_size=32), texts, texts)
def test_a_keyed_hash_is_an_hmac_of_context_and_text(secret, text, context):
    key = HKDF(SHA256(), length=32, salt=None, info=b"refine/mac").derive(secret)
    expected = hmac.new(key, f"{context}\x00{text}".encode(), hashlib.sha256)

    assert DataKey(secret).mac(text, context) == expected.hexdigest()


def test_a_wrapped_data_key_of_another_owner_is_refused():
    ring = Keyring([fresh()])
    wrapped = ring.wrap_new(OWNER)

    for other in ("agent 70", "agent ", "platform", ""):
        with pytest.raises(SealingError, match="it was moved"):
            ring.unwrap(wrapped, ring.primary, other)


def test_the_first_key_wraps_and_every_key_of_the_ring_unwraps():
    old, new = fresh(), fresh()
    before, after = Keyring([old]), Keyring([new, old])
    wrapped = before.wrap_new(OWNER)
    sealed = before.unwrap(wrapped, before.primary, OWNER).seal("a memory", PLACE)

    assert after.unwrap(wrapped, before.primary, OWNER).open(sealed, PLACE) == "a memory"
    assert after.primary == Keyring([new]).primary
    assert after.fingerprints == {after.primary, before.primary}
    assert Keyring([new]).unwrap(after.wrap_new(OWNER), after.primary, OWNER)


def test_rewrapping_moves_a_data_key_to_the_first_key():
    old, new = fresh(), fresh()
    before, after = Keyring([old]), Keyring([new])
    wrapped = before.wrap_new(OWNER)
    sealed = before.unwrap(wrapped, before.primary, OWNER).seal("a memory", PLACE)

    rewrapped = Keyring([new, old]).rewrap(wrapped, before.primary)

    assert after.unwrap(rewrapped, after.primary, OWNER).open(sealed, PLACE) == "a memory"


ARGUMENTS = {"unwrap": (OWNER,), "rewrap": ()}


@pytest.mark.parametrize("verb", ARGUMENTS)
def test_an_unknown_wrapping_key_is_a_wrong_key(verb):
    lost, key = Keyring([fresh()]), fresh()
    wrapped = lost.wrap_new(OWNER)

    with pytest.raises(WrongKey, match=lost.primary) as error:
        getattr(Keyring([key]), verb)(wrapped, lost.primary, *ARGUMENTS[verb])

    assert key not in str(error.value)


@pytest.mark.parametrize("verb", ARGUMENTS)
@pytest.mark.parametrize("wrapped", [b"", b"canary", b"\x00" * 100])
def test_an_altered_data_key_is_damage_and_not_a_wrong_key(verb, wrapped):
    key = fresh()
    ring = Keyring([key])

    with pytest.raises(SealingError, match="restore it from a backup") as error:
        getattr(ring, verb)(wrapped, ring.primary, *ARGUMENTS[verb])

    assert not isinstance(error.value, WrongKey)
    assert "canary" not in str(error.value)
    assert key not in str(error.value)
