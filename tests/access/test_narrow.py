"""Access to less than everything: what is asked, what the agent may answer, and what stays shut."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from refine.access import reading
from refine.access.reading import NoAccess, Opened
from refine.errors import RowAltered
from refine.extensions import db
from refine.models import AccessGrant, AgentMemory
from refine.models.runs.access.asking_rules import AccessScope
from tests import factories, sql
from tests.access.conftest import World
from tests.access.trees import Trees, planted, scopes_of


@pytest.fixture
def trees(world: World) -> Trees:
    return planted(world.agent)


# -- what a narrow grant opens --------------------------------------------------------------------


def reads(trees: Trees) -> Iterator[Callable[[AccessGrant], Any]]:
    """Every way to read, of everything that the agent keeps."""
    among = db.select(AgentMemory).order_by(AgentMemory.id)
    ids = list(db.session.scalars(db.select(AgentMemory.id)))
    records = [record.id for record in factories.records(trees.agent)]
    yield lambda it: reading.memories(it.id, it.user, ids)
    yield lambda it: reading.contents(it.id, it.user, ids)
    yield lambda it: reading.search(it.id, it.user, "a", among, rows=99)
    yield lambda it: reading.prompts(it.id, it.user)
    for id_ in ids:
        yield lambda it, id_=id_: reading.versions(it.id, it.user, id_)
    for id_ in records:
        yield lambda it, id_=id_: reading.read_record(it.id, it.user, id_)
    for id_ in (trees.first.id, trees.second.id):
        yield lambda it, id_=id_: reading.session(it.id, it.user, id_)


def told(shown: Any) -> str:
    if isinstance(shown, Opened):
        return str([shown.texts, *((each.before, each.after) for each in shown.changes)])
    return str(shown.texts if isinstance(shown, reading.Found) else shown)


def seen(grant: AccessGrant, trees: Trees) -> set[str]:
    """The texts that all ways of reading together show."""
    said = []
    for read in reads(trees):
        try:
            said.append(told(read(grant)))
        except NoAccess:
            db.session.rollback()
    return {name for name, text in trees.texts.items() if text in "\n".join(said)}


def test_a_narrow_grant_opens_what_it_names_and_nothing_else(world, trees, subtests):
    for name, (scope, opened) in scopes_of(trees).items():
        with subtests.test(scope=name):
            grant = world.grant(scope=scope)

            assert seen(grant, trees) == opened

            grant.end(user=world.reader)
            db.session.commit()


def test_one_narrow_grant_after_another_opens_what_the_last_one_names(world, trees):
    scopes = scopes_of(trees)
    world.grant(scope=scopes["alder"][0]).end(user=world.reader)
    second = world.grant(scope=scopes["elder"][0])

    with pytest.raises(Exception, match="already have access"):
        world.request(scope=scopes["alder"][0])

    assert seen(second, trees) == scopes["elder"][1]


def test_what_is_not_opened_is_not_on_record_as_read(world, trees):
    grant = world.grant(scope=AccessScope(memory_ids=frozenset([trees.ids["alder"]])))

    seen(grant, trees)

    data = [record.data for record in world.records("memory_access_viewed")]
    assert {id_ for each in data for id_ in each["ids"]} == {trees.ids["alder"]}
    assert {"search", "prompts"}.isdisjoint(each["what"] for each in data)


def test_a_scope_that_was_widened_in_the_database_opens_nothing(world, trees, subtests):
    grant = world.grant(scope=AccessScope(trees.first.id, frozenset([trees.ids["cedar"]])))

    for change in (
        "session_id = NULL",
        "memory_ids = NULL",
        "memory_ids = memory_ids || 1::bigint",
    ):
        with subtests.test(change=change):
            before = sql.copied(grant)
            sql.tamper(f"UPDATE access_grants SET {change}")
            with pytest.raises(RowAltered, match="AccessGrant"):
                reading.session(grant.id, world.reader, trees.first.id)
            db.session.rollback()
            before()


# -- what the agent is asked, and may answer ------------------------------------------------------


def asked(world: World) -> str:
    return str(world.model.requests[0]["messages"][-1]["content"])


def test_it_is_asked_for_one_session_or_memory_and_told_what_that_opens(world, trees):
    scopes, told = scopes_of(trees), {}
    for name in ("everything", "the first session", "alder"):
        world.model.say("YES")
        world.ask(world.request(scope=scopes[name][0])).end(user=world.reader)
        told[name] = asked(world)
        world.model.requests.clear()

    assert "# May a human read your memories?" in told["everything"]
    assert "# May a human read the changes of one session?" in told["the first session"]
    assert '"summary":"' in told["the first session"]
    assert f"# May a human read memory #{trees.ids['alder']}?" in told["alder"]
    assert trees.texts["alder"] in told["alder"]
    shut = "and nothing else: no other memories, no prompts, no search"
    assert [shut in said for said in told.values()] == [False, True, True]
    shown = [name for name, text in trees.texts.items() if text in told["everything"]]
    assert shown == ["second summary"]


def answers(trees: Trees) -> dict[str, tuple[AccessScope, int]]:
    """Each answer to a request to read everything for 30 minutes, and what it grants."""
    everything, cedar = AccessScope(), trees.ids["cedar"]
    both = frozenset([cedar, trees.ids["elder"]])
    return {
        "YES\nONLY: 15 minutes": (everything, 15),
        "YES\nONLY: 30 minutes": (everything, 30),
        "**Yes**, gladly.\n\n`ONLY: 1 minute`": (everything, 1),
        f"YES\nONLY: memory {cedar}": (AccessScope(memory_ids=frozenset([cedar])), 30),
        f"yes\n\nonly: memories #{cedar} and #{trees.ids['elder']}.": (
            AccessScope(memory_ids=both),
            30,
        ),
        "<think>All?</think>YES\nONLY: this session": (AccessScope(trees.second.id), 30),
        f"YES\nONLY: this session\nONLY: memories {cedar}\nONLY: 9 minutes": (
            AccessScope(trees.second.id, frozenset([cedar])),
            9,
        ),
    }


def test_an_agent_may_grant_less_than_was_asked(world, trees, subtests):
    for answer, (scope, minutes) in answers(trees).items():
        with subtests.test(answer=answer):
            world.model.say(answer)

            grant = world.ask()

            assert (grant.status, grant.scope, grant.minutes) == ("granted", scope, minutes)
            record = world.records("memory_access_granted")[-1]
            assert record.data["duration_minutes"] == minutes
            assert {**scope.as_data(), **record.data} == record.data
            grant.end(user=world.reader)
            db.session.commit()


@pytest.mark.parametrize(
    "answer",
    [
        "YES\nONLY: 31 minutes",
        "YES\nONLY: 0 minutes",
        "YES\nONLY: 10 minutes, please",
        "YES\nONLY: 10 minutes\nThank you.",
        "YES\nONLY: 10 minutes\nONLY: 20 minutes",
        "YES\nONLY: memory 999999999",
        "YES\nONLY: memories about the garden",
        "YES\nONLY: ",
        "YES, ONLY: 10 minutes",
        "YES?\nONLY: 10 minutes",
        "ONLY: 10 minutes",
        "ONLY: 10 minutes\nYES",
        "Sure.\nONLY: 10 minutes",
    ],
)
def test_limits_that_cannot_be_kept_to_the_letter_are_asked_back_and_grant_nothing(world, answer):
    world.model.say(answer)
    world.model.say(answer)

    grant = world.ask()

    assert (grant.status, grant.error_kind) == ("failed", "no_answer")
    back = world.model.requests[1]["messages"][-1]["content"]
    assert "except for limits in the exact form that the question gives" in back


def test_a_limit_in_the_second_answer_counts_and_a_no_with_one_is_a_no(world):
    world.model.say("YES, but only ten minutes")
    world.model.say("YES\nONLY: 10 minutes")
    assert world.ask().minutes == 10
    db.session.rollback()
    AccessGrant.end_all_of(world.reader, by=None)
    db.session.commit()
    world.model.say("NO\nONLY: 10 minutes")

    assert world.ask().status == "declined"


def test_nobody_is_granted_more_than_they_asked_for(world, trees, subtests):
    ids, first = trees.ids, trees.first.id
    narrow = {
        AccessScope(memory_ids=frozenset([ids["alder"]])): [
            "ONLY: this session",
            f"ONLY: memory {ids['birch']}",
            f"ONLY: memories {ids['alder']}, {ids['birch']}",
        ],
        AccessScope(first): [f"ONLY: memory {ids['elder']}"],
    }
    for scope, lines in narrow.items():
        for line in lines:
            with subtests.test(scope=str(scope), line=line):
                world.model.say(f"YES\n{line}")
                world.model.say(f"YES\n{line}")
                assert world.ask(world.request(scope=scope)).status == "failed"

    grant = factories.grant(world.agent, scope=AccessScope(first))
    for wider in (AccessScope(), AccessScope(trees.second.id), AccessScope(None, frozenset([1]))):
        with pytest.raises(ValueError, match="no more than was asked"):
            grant.settle("YES", agreed=True, generation_id=None, scope=wider)
    with pytest.raises(ValueError, match="no more than was asked"):
        grant.settle("YES", agreed=True, generation_id=None, minutes=61)


def test_what_a_session_changed_may_be_granted_in_part(world, trees):
    world.model.say(f"YES\nONLY: this session\nONLY: memory {trees.ids['cedar']}")

    grant = world.ask(world.request(scope=AccessScope(trees.first.id)))

    assert grant.scope == AccessScope(trees.first.id, frozenset([trees.ids["cedar"]]))


def test_the_note_and_the_records_tell_the_scope_by_ids(world, trees):
    scope = AccessScope(trees.first.id, frozenset([trees.ids["cedar"]]))
    grant = factories.live_grant(world.agent, world.reader, scope=scope, duration_minutes=30)

    note = factories.journal(world.agent)[-1].content
    told = f"the changes of one session to memory #{trees.ids['cedar']} ({trees.first.id})"
    assert f"I let admin {grant.user_id} read {told} for 30 minutes" in note
    assert factories.grant(factories.agent()).minutes == 60  # as asked, until it is answered
    for action in ("requested", "granted"):
        data = next(
            record.data
            for record in factories.records(world.agent)
            if record.action == f"memory_access_{action}"
        )
        assert data["session_id"] == str(trees.first.id)
        assert data["memory_ids"] == [trees.ids["cedar"]]


def test_nothing_is_asked_about_another_agents_memory(world):
    other = factories.memory(factories.agent(account=world.agent.account), "not yours")
    db.session.commit()

    with pytest.raises(RowAltered):
        world.ask(world.request(scope=AccessScope(memory_ids=frozenset([other.id]))))

    assert world.model.requests == []
