"""Rows become memories: once each, recorded, in complete batches."""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from flask import Flask
from hypothesis import HealthCheck, given, settings, strategies as st

from refine.errors import InvalidValue
from refine.extensions import db
from refine.models import Agent, AgentMemory
from refine.models.ledger.history import effect_tokens
from refine.rules.content import TAGS, comparable
from refine.rules.instants import EARLIEST
from refine.transfer import own
from refine.transfer.importing import Report, import_memories
from refine.transfer.rows import BadRow, Incoming, LeftOut, Row
from tests import factories
from tests.chains import verify_agent
from tests.transfer.files import all_of, bring, contents, exported, fixture

AT = datetime(2025, 11, 2, 15, 15, 30, tzinfo=UTC)


@pytest.fixture
def owner(app: Flask) -> Agent:
    made = factories.agent()
    db.session.commit()
    return made


def row(content: str = "a memory", place: str = "line 1", **fields: Any) -> Incoming:
    return Incoming(place=place, content=content, **fields)


def add(owner: Agent, *rows: Row, **options: Any) -> Report:
    return import_memories(owner, lambda: rows, **{"source": "mem0", **options})


class TestImportedMemory:
    def test_has_every_field_of_its_row(self, owner):
        report = add(
            owner,
            row(
                " a vow ",
                tags=("relational", "voice"),
                constitutional=True,
                origin=own.origin_of(owner),
                created_at=AT,
                source_id="17",
                extra='{"label": "vows"}',
            ),
        )

        (memory,) = all_of(owner)
        assert (memory.content, memory.memory_type, memory.constitutional) == (
            "a vow",
            "core",
            True,
        )
        assert memory.tags == ["voice", "relational"]
        assert memory.created_at == AT
        assert memory.recorded_at > AT
        assert (memory.source, memory.source_id) == ("mem0", "17")
        assert memory.extra == '{"label": "vows"}'
        assert (report.added, report.added_tokens) == ({"core": 1}, 2)

    def test_stores_no_plain_text(self, owner):
        add(owner, row("the canary sings", source_id="canary song", extra='{"a": "canary"}'))

        (memory,) = all_of(owner)
        (record,) = factories.records(owner)
        assert "canary" not in f"{vars(memory)} {record.data} {memory.source_id}"
        assert "canary" in record.sealed["memories"][0]["after"]["content"]


class TestBatchRecord:
    def test_lists_the_added_memories_and_counts_the_others(self, owner):
        add(owner, row("b"), row("b"), row("c"))

        (record,) = factories.records(owner)
        b, c = all_of(owner)
        assert record.action == "memory_imported"
        assert (record.auditable_type, record.auditable_id) == ("Agent", str(owner.id))
        assert [memory["id"] for memory in record.data["memories"]] == [b.id, c.id]
        facts = {name: record.data[name] for name in ("source", "batch", "added", "already_here")}
        assert facts == {"source": "mem0", "batch": 1, "added": 2, "already_here": 1}
        assert record.data["by"] == "command line"
        assert record.data["mass_after"] == 2
        assert effect_tokens(record.data) == 2

    def test_is_written_per_500_memories(self, owner):
        report = add(owner, *(row(f"memory {number}") for number in range(1_001)))

        assert report.batches == 3
        numbers = [record.data["added"] for record in factories.records(owner)]
        assert numbers == [500, 500, 1]
        assert verify_agent(owner).problem is None
        assert verify_agent(owner).memories == 1_001


class TestRepeatedImport:
    @pytest.mark.parametrize(
        ("name", "format_", "count"),
        [
            ("agent-v2.af", "letta", 2),
            ("agent-v1.af", "letta", 2),
            ("passages.json", "letta", 1),
            ("mem0.json", "mem0", 2),
            ("mcp.jsonl", "mcp", 6),
        ],
    )
    def test_a_repeated_import_adds_nothing(self, owner, name, format_, count):
        first = bring(owner, fixture(name), format_)

        second = bring(owner, fixture(name), format_)

        assert first.added.total() == count
        assert (second.added.total(), second.already_present) == (0, count)
        assert len(all_of(owner)) == count
        assert verify_agent(owner).problem is None

    def test_adds_nothing_that_the_agent_discarded(self, owner):
        rows = [row("a", source_id="1"), row("b")]
        add(owner, *rows)
        for memory in all_of(owner):
            memory.discard()
        db.session.commit()

        report = add(owner, *rows)

        assert report.already_present == 2
        assert len(all_of(owner)) == 2

    def test_adds_nothing_that_the_agent_rewrote(self, owner):
        add(owner, row("wordy", source_id="1"))
        (memory,) = all_of(owner)
        memory.content = "terse"
        db.session.commit()

        report = add(owner, row("wordy", source_id="1"))

        assert contents(owner) == ["terse"]
        assert (report.already_present, report.conflicting) == (1, 1)

    @pytest.mark.parametrize("dry_run", [False, True])
    def test_counts_ids_with_conflicting_texts(self, owner, dry_run):
        rows = [row("first", source_id="1"), row("second", source_id="1")]

        report = add(owner, *rows, row("first", source_id="1"), dry_run=dry_run)

        assert report.added.total() == 1
        assert (report.already_present, report.conflicting) == (2, 1)
        said = dict(report.rows())["already here"]
        assert said == "2, 1 of them with a different text, not stored"

    def test_adds_memories_that_only_a_session_wrote(self, owner):
        factories.memory(owner, "Said before", session_id=factories.session(owner).id)
        db.session.commit()

        report = add(owner, row("Said before", source_id="9"))

        assert (report.already_present, contents(owner)) == (0, ["Said before"] * 2)

    def test_adds_a_duplicate_that_is_better_protected(self, owner):
        factories.memory(owner, "a vow")
        db.session.commit()
        locked = row("a vow", source_id="1", constitutional=True, origin=own.origin_of(owner))
        tagged = row("a vow", source_id="2", tags=("voice",))

        add(owner, locked, tagged)

        standing = [(memory.constitutional, memory.tags) for memory in all_of(owner)]
        assert standing == [(False, []), (True, []), (False, ["voice"])]

    def test_ignores_other_agents_and_accounts(self, owner):
        neighbour = factories.agent(account=owner.account)
        stranger = factories.agent()
        db.session.commit()
        rows = [row("a", source_id="1"), row("b")]
        for other in (neighbour, stranger):
            add(other, *rows)

        report = add(owner, *rows)

        assert report.added.total() == 2
        assert [len(all_of(one)) for one in (owner, neighbour, stranger)] == [2, 2, 2]
        assert {memory.agent_id for memory in all_of(owner)} == {owner.id}
        (mine, theirs) = (all_of(owner)[1].source_id, all_of(stranger)[1].source_id)
        assert mine != theirs


class TestBadRows:
    def test_are_named_and_do_not_stop_the_others(self, owner):
        report = add(
            owner,
            BadRow("line 1", "must be valid JSON"),
            row(" ", place="line 2"),
            row("a\x00", place="line 3"),
            row(place="line 4", tags=("smell",)),
            row(place="line 5", memory_type="dream"),
            row("x" * 10_001, place="line 6"),
            LeftOut("relations"),
            row("good", place="line 7"),
        )

        assert contents(owner) == ["good"]
        assert report.bad_rows == 6
        assert [(bad.place, bad.reason) for bad in report.named_bad_rows] == [
            ("line 1", "must be valid JSON"),
            ("line 2", "content must not be empty"),
            ("line 3", "content must not contain a NUL character"),
            ("line 4", "unknown tag; allowed tags: audio, somatic, voice, relational"),
            ("line 5", "memory_type must be one of core, journal"),
            ("line 6", "content has 10,001 characters; at most 10,000 are allowed"),
        ]
        assert report.left_out == {"relations": 1}
        assert not report.is_failure

    def test_stop_a_strict_import_before_anything_is_written(self, owner):
        rows = [row(f"memory {number}") for number in range(600)]
        rows.append(row(" ", place="line 601"))

        with pytest.raises(InvalidValue) as refusal:
            add(owner, *rows, strict=True)

        said = "nothing was imported: line 601: content must not be empty"
        assert str(refusal.value) == said
        assert all_of(owner) == []
        assert factories.records(owner) == []


class TestDryRun:
    def test_counts_exactly_what_the_import_adds(self, owner):
        factories.memory(owner, "here already")
        db.session.commit()
        rows = [
            row("here already"),
            *(row(f"memory {number}") for number in range(700)),
            row("memory 7"),
            row("memory 8", source_id="8"),
            row("entry", memory_type="journal"),
            BadRow("line 9", "must be valid JSON"),
            LeftOut("blank"),
        ]
        promised = add(owner, *rows, dry_run=True)
        untouched = len(all_of(owner)), len(factories.records(owner))

        done = add(owner, *rows)

        assert untouched == (1, 0)
        assert promised == done
        assert done.added == {"core": 700, "journal": 1}
        assert done.already_present == 3


class TestInterruptedImport:
    def test_leaves_complete_batches_and_resumes(self, owner):
        rows = [row(f"memory {number}") for number in range(1_200)]
        interrupted = Report()

        def interrupted_read() -> Iterator[Row]:
            yield from rows[:1_100]
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            import_memories(owner, interrupted_read, source="mem0", report=interrupted)
        left = len(all_of(owner))
        added = [record.data["added"] for record in factories.records(owner)]
        again = add(owner, *rows)

        assert left == interrupted.added.total() == sum(added) == 1_000
        assert (again.added.total(), again.already_present) == (200, 1_000)
        assert len(all_of(owner)) == 1_200
        assert verify_agent(owner).problem is None

    def test_holds_no_transaction_while_reading(self, owner):
        def watched() -> Iterable[Row]:
            for number in range(1_000):
                assert not db.session().in_transaction()
                yield row(f"memory {number}")

        report = import_memories(owner, watched, source="mem0", strict=True)

        assert report.added.total() == 1_000


_TEXTS = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), min_size=1, max_size=80
).filter(str.strip)

_MEMORIES = st.lists(
    st.fixed_dictionaries(
        {
            "content": _TEXTS.map(str.strip),
            "memory_type": st.sampled_from(["core", "journal"]),
            "constitutional": st.booleans(),
            "tags": st.sets(st.sampled_from(TAGS)).map(lambda tags: [t for t in TAGS if t in tags]),
            "created_at": st.datetimes(
                EARLIEST.replace(tzinfo=None), AT.replace(tzinfo=None), timezones=st.just(UTC)
            ),
            "spans_until": st.sampled_from([None, AT]),
            "extra": st.none() | _TEXTS,
        }
    ),
    max_size=6,
    unique_by=lambda memory: comparable(memory["content"]),
)


class TestOwnFormat:
    @given(_MEMORIES)
    @settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
    def test_a_round_trip_restores_every_memory_but_no_constitutional_flag(self, app, memories):
        giver, taker = factories.agent(), factories.agent()
        for number, fields in enumerate(memories):
            discarded_at = AT if number % 3 == 2 else None
            factories.memory(giver, discarded_at=discarded_at, **fields)
        db.session.commit()

        first = bring(taker, exported(giver))
        second = bring(taker, exported(giver))

        assert (first.added.total(), first.bad_rows) == (len(memories), 0)
        assert second.added.total() == 0
        for kept, taken in zip(all_of(giver), all_of(taker), strict=True):
            assert state_of(taken) == {**state_of(kept), "constitutional": False}

    def test_export_without_contents_shows_none_and_cannot_be_imported(self, owner):
        factories.memory(owner, "the canary sings", extra='{"a": "canary"}', created_at=AT)
        db.session.commit()

        file = "\n".join(own.metadata_lines(owner, all_of(owner)))

        assert "canary" not in file
        assert '"created_at":"2025-11-02T15:15:30.000000+00:00"' in file
        report = bring(owner, file)
        (bad,) = report.named_bad_rows
        assert bad.reason.startswith("is of an export without contents")


def state_of(memory: AgentMemory) -> dict[str, Any]:
    names = ("content", "memory_type", "constitutional", "tags", "created_at", "spans_until")
    return {
        name: getattr(memory, name) for name in (*names, "discarded_at", "extra", "token_estimate")
    }
