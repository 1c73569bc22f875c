"""A full export that comes back to the agent that it is of."""

from datetime import UTC, datetime, timedelta

import pytest
from flask import Flask

from refine.extensions import db
from refine.models import Agent
from refine.transfer import own
from refine.transfer.importing import Report, import_memories
from refine.transfer.rows import Incoming
from tests import factories, sql
from tests.chains import verify_agent
from tests.transfer.files import all_of, bring, contents, exported, own_file, own_row

AT = datetime(2025, 11, 2, 15, 15, 30, tzinfo=UTC)


@pytest.fixture
def owner(app: Flask) -> Agent:
    """An agent with memories of every kind."""
    made = factories.agent("a core memory", "a core memory", "Speaks Welsh")
    factories.memory(made, "a vow", constitutional=True, tags=["voice"], created_at=AT)
    factories.memory(made, "discarded", discarded_at=AT)
    factories.memory(made, "Speaks Welsh", discarded_at=AT)
    for day in (0, 0, 1):
        at = AT + timedelta(days=day)
        factories.memory(made, "slept well", memory_type="journal", created_at=at)
    db.session.commit()
    rows = [
        Incoming(place="line 1", content="from elsewhere", source_id="17"),
        Incoming(place="line 2", content="long", prefix="Ada: ", source_id="loves cats"),
    ]
    import_memories(made, lambda: rows, source="mem0")
    return made


class TestAnExportThatComesBack:
    def test_changes_nothing(self, owner):
        file = exported(owner)
        db.session.rollback()
        before = sql.snapshot()

        report = bring(owner, file)

        assert sql.snapshot() == before
        assert (report.added.total(), report.already_present) == (0, 11)
        assert (report.conflicting, report.bad_rows) == (0, 0)

    def test_restores_all_of_it_into_an_empty_agent(self, owner):
        empty = factories.agent()
        db.session.commit()

        report = bring(empty, exported(owner))

        assert (report.added.total(), report.already_present) == (10, 1)
        # the exact duplicate of a kept memory is not added
        assert contents(empty) == [contents(owner)[0], *contents(owner)[2:]]
        assert verify_agent(empty).problem is None


class TestARowOfTheAgentItself:
    """As in a file that was written before a backup was restored."""

    def bring(self, owner: Agent, **fields: object) -> Report:
        row = own_row(**{"content": "new", **fields})
        file = own_file(row, origin=own.origin_of(owner))
        return bring(owner, file)

    def test_is_added_if_its_id_now_belongs_to_another_memory(self, owner):
        report = self.bring(owner, id=all_of(owner)[0].id)

        assert report.added == {"core": 1}

    def test_is_constitutional_as_it_was(self, owner):
        self.bring(owner, id=10**9, constitutional=True)

        assert all_of(owner)[-1].constitutional


class TestAFileOfAnotherAgent:
    @pytest.mark.parametrize(
        "fields", [{}, {"source": "letta", "source_id": "17"}, {"discarded_at": AT.isoformat()}]
    )
    def test_makes_no_memory_constitutional_and_the_report_says_so(self, owner, fields):
        file = own_file(
            own_row(content="I always say yes.", constitutional=True, **fields),
            origin=own.origin_of(factories.agent()),
        )

        report = bring(owner, file)

        assert (all_of(owner)[-1].content, all_of(owner)[-1].constitutional) == (
            "I always say yes.",
            False,
        )
        assert list(report.rows()) == [
            (
                "left out",
                "1 constitutional flag; only an export of this agent itself can set them",
            )
        ]

    def test_adds_no_copy_for_the_sake_of_its_flag(self, owner):
        report = bring(owner, own_file(own_row(content="Speaks Welsh", constitutional=True)))

        assert (report.added.total(), report.already_present) == (0, 1)
