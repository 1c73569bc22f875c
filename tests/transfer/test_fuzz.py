"""Damaged files give rows or reasons: no crash, no quoted content, no partial batch."""

import random
from collections.abc import Callable

import pytest

from refine.transfer.importing import import_memories
from refine.transfer.rows import BadRow, Incoming, LeftOut
from tests import factories
from tests.chains import verify_agent
from tests.transfer.files import fixture, own_file, own_row, read, reading
from tests.transfer.shapes import SHAPES

pytestmark = pytest.mark.slow

FILES_READ = 3_000

SPLINTERS = (
    *(bytes([byte]) for byte in b'{}[]",:\\\n \x00\xff'),
    b"\xef\xbb\xbf",
    *(b"null", b"true", b"NaN", b"-Infinity", b"1e999", b"-0", b"9" * 200, b"0.1", b"1762096530"),
    *(b"\\u0000", b"\\ud800", b"\\udc00", b"\\u", b"\xc3\x28", "\u2028".encode(), b"\r\n"),
    *(b"[" * 50, b'{"a":' * 50, b"x" * 11_000, b'"id"', b'"value"', b'"memory"', b'"observations"'),
    *(b'"end":"refine-memories"', b'"created_at":', b'"2199-01-01"', b'"tags":["voice",7]'),
)


def files() -> list[tuple[str, bytes]]:
    """Every fixture with its format, and each under another one's name."""
    own = own_file(
        own_row(tags=["voice"], extra='{"a": 1}'),
        own_row(id=2, content="another memory", constitutional=True, source="mem0", source_id="7"),
        own_row(id=3, content="a third", memory_type="journal", discarded_at="2026-01-03"),
    ).encode()
    intact = [
        ("letta", fixture("agent-v2.af")),
        ("letta", fixture("agent-v1.af")),
        ("letta", fixture("agent-in-a-string.af")),
        ("letta", fixture("passages.json")),
        ("mem0", fixture("mem0.json")),
        *[("mem0", fixture("mem0-page.json"))] * 20,
        ("mem0", fixture("mem0-people.json")),
        ("mcp", fixture("mcp.jsonl")),
        ("refine", own),
        *((shape.format_, encoded(shape.content)) for shape in SHAPES.values()),
    ]
    mislabelled = [
        (intact[position - 1][0], content) for position, (_, content) in enumerate(intact)
    ]
    return [*intact, *intact, *intact, *mislabelled]


def encoded(content: bytes | str) -> bytes:
    return content.encode() if isinstance(content, str) else content


def cut(file: bytes, chance: random.Random) -> bytes:
    return file[: chance.randrange(len(file) + 1)]


def flip(file: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(file) + 1)
    return file[:at] + bytes([chance.randrange(256)]) + file[at + 1 :]


def drop(file: bytes, chance: random.Random) -> bytes:
    start, end = sorted(chance.randrange(len(file) + 1) for _ in range(2))
    return file[:start] + file[min(end, start + 40) :]


def repeat(file: bytes, chance: random.Random) -> bytes:
    start = chance.randrange(len(file) + 1)
    piece = file[start : start + chance.randrange(1, 200)]
    return file[:start] + piece + file[start:]


def insert(file: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(file) + 1)
    return file[:at] + chance.choice(SPLINTERS) + file[at:]


def swap(file: bytes, chance: random.Random) -> bytes:
    """Put a splinter in place of a value, so that the rest stays well formed."""
    pieces = file.split(b":")
    if len(pieces) > 1:
        at = chance.randrange(1, len(pieces))
        value, comma, rest = pieces[at].partition(b",")
        pieces[at] = chance.choice(SPLINTERS) + comma + rest if comma else value
    return b":".join(pieces)


DAMAGES: tuple[Callable[[bytes, random.Random], bytes], ...] = (
    *(cut, flip, drop, repeat),
    *(insert, insert, swap, swap),
)


def damaged(seed: int) -> tuple[str, bytes]:
    """The same file for the same seed in every run."""
    chance = random.Random(seed)
    format_, file = chance.choice(FILES)
    for _ in range(chance.choice((1, 1, 2, 4))):
        file = chance.choice(DAMAGES)(file, chance)
    return format_, file


FILES = files()


def test_thousands_of_damaged_files_give_rows_or_reasons():
    kinds = {Incoming: 0, BadRow: 0, LeftOut: 0, "further pages": 0}
    reasons = set[str]()

    for seed in range(FILES_READ):
        format_, file = damaged(seed)
        try:
            rows = read(file, format_)
        except Exception as fault:
            pytest.fail(f"seed {seed}, {format_}: {type(fault).__name__} {fault}")
        for row in rows:
            kinds[type(row)] += 1
            if isinstance(row, BadRow):
                assert len(row.place) < 60, seed
                assert len(row.reason) < 120, seed
                kinds["further pages"] += row.reason.startswith("is one page of several")
                reasons.add("".join(letter for letter in row.reason if not letter.isdigit()))

    assert all(count > FILES_READ / 20 for count in kinds.values()), kinds
    # without digits, only the messages in the source are left: nothing of a file is quoted
    assert len(reasons) < 60, reasons


@pytest.mark.parametrize("count", [120, pytest.param(800, marks=pytest.mark.nightly)])
def test_damaged_files_are_imported_in_complete_batches(app, count):
    account = factories.account()
    added = 0

    for seed in range(FILES_READ, FILES_READ + count):
        format_, file = damaged(seed)
        owner = factories.agent(account=account)
        report = import_memories(owner, reading(file, format_), source=format_)
        again = import_memories(owner, reading(file, format_), source=format_)

        verified = verify_agent(owner)
        assert verified.problem is None, seed
        assert verified.memories == report.added.total(), seed
        assert verified.records == report.batches == bool(report.added), seed
        assert again.added.total() == 0, seed
        added += verified.memories

    assert added > count / 2
