import json
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import select
from sqlalchemy.exc import DBAPIError

from refine import clock
from refine.extensions import db
from refine.models import AgentMemory, RefinementSession
from refine.tools import RefinementTool
from refine.tools.refinement import ACTIONS, DEFINITION
from tests import factories, sql
from tests.factories import text_of
from tests.tools.arguments import JSON, NAMES

NOW = datetime(2026, 3, 4, 12, tzinfo=UTC)
NOTHING = {"consolidated": 0, "updated": 0, "deleted": 0, "protected": 0}


@pytest.fixture
def agent(app):
    """Twenty memories of 25 tokens: 125 of 500 may go."""
    return factories.agent(*(text_of(25) for _ in range(20)))


@pytest.fixture
def ids(agent):
    return [memory.id for memory in db.session.scalars(agent.ledger.core())]


@pytest.fixture
def tool(agent):
    return RefinementTool(factories.session(agent))


def content(memory_id):
    return memory(memory_id).content


def memory(memory_id):
    return db.session.get_one(AgentMemory, memory_id, populate_existing=True)


def refused(tool, *args, **call):
    """The error of a call that must change nothing and count for nothing."""
    before, stats = sql.snapshot(), tool.stats
    result = tool.execute(*args, **call)
    assert result["type"] == "error"
    assert json.loads(json.dumps(result)) == result
    assert sql.snapshot() == before
    assert tool.stats == stats
    assert not db.session().in_transaction()
    return result["error"]


# -- what every call is like -----------------------------------------------------------------------


def test_a_call_is_committed_and_leaves_no_transaction_open(tool, ids):
    tool.execute(action="delete", id=ids[0])

    assert not db.session().in_transaction()
    assert sql.value("SELECT count(*) FROM agent_memories WHERE discarded_at IS NOT NULL") == 1
    assert sql.value("SELECT mutation_count FROM refinement_sessions") == 1


@pytest.mark.parametrize(
    ("call", "result_type"),
    [
        ({"action": "search", "query": "abc"}, "search_results"),
        ({"action": "delete"}, "deleted"),
        ({"action": "protect"}, "protected"),
        ({"action": "update", "content": "x" * 100}, "updated"),
        ({"action": "complete", "summary": "Fine."}, "refinement_complete"),
        ({"action": "nonsense"}, "error"),
    ],
)
def test_every_result_is_json_with_a_type(tool, ids, call, result_type):
    if call["action"] in ("delete", "protect", "update"):
        call = {**call, "id": ids[0]}

    result = tool.execute(**call)

    assert result["type"] == result_type
    assert json.loads(json.dumps(result)) == result


def test_the_definition_names_every_action_and_parameter():
    properties = DEFINITION["function"]["parameters"]["properties"]

    assert properties["action"]["enum"] == list(ACTIONS)
    assert set(properties) - {"action"} == {
        name for required, optional in ACTIONS.values() for name in (*required, *optional)
    }
    assert json.loads(json.dumps(DEFINITION)) == DEFINITION


def test_stats_count_what_was_done(tool, ids):
    before = tool.stats

    tool.execute(action="consolidate", ids=ids[:3], content=text_of(75))
    tool.execute(action="update", id=ids[3], content=text_of(25))
    tool.execute(action="delete", id=ids[4])
    tool.execute(action="protect", id=ids[5])

    assert before == NOTHING
    assert tool.stats == {"consolidated": 3, "updated": 1, "deleted": 1, "protected": 1}


def test_stats_are_a_copy(tool):
    tool.stats["deleted"] = 9

    assert tool.stats == NOTHING


# -- actions and parameters ------------------------------------------------------------------------


def test_an_unknown_or_missing_action_names_the_allowed_ones(tool, ids, subtests):
    for action, error in [
        ("x", "Invalid action 'x'"),
        ("Delete", "Invalid action 'Delete'"),
        ("delete ", "Invalid action 'delete '"),
        ("it's\nbad", "Invalid action 'it's\nbad'"),
        ("x" * 61, f"Invalid action '{'x' * 60}'"),
        ("", "Invalid action ''"),
        (None, "action is required"),
        (7, "Invalid action '7'"),
        (["delete"], "Invalid action '['delete']'"),
        ({}, "Invalid action '{}'"),
        (True, "Invalid action 'True'"),
    ]:
        with subtests.test(action=action):
            assert tool.execute(action=action, id=ids[0]) == {
                "type": "error",
                "error": error,
                "allowed_actions": list(ACTIONS),
            }


def test_a_call_without_anything_is_refused(tool):
    assert refused(tool) == "action is required"


def test_a_very_long_action_is_not_repeated_at_length(tool):
    assert len(refused(tool, action="x" * 10_000)) < 100


def test_a_missing_parameter_is_named(tool, subtests):
    for call, missing in [
        ({"action": "search"}, "query"),
        ({"action": "consolidate"}, "ids"),
        ({"action": "consolidate", "ids": "1, 2"}, "content"),
        ({"action": "update", "content": "x"}, "id"),
        ({"action": "update", "id": 1}, "content"),
        ({"action": "delete"}, "id"),
        ({"action": "protect", "id": None}, "id"),
        ({"action": "complete"}, "summary"),
    ]:
        with subtests.test(call=call):
            assert refused(tool, **call).startswith(f"{missing} is required for {call['action']}")


@pytest.mark.parametrize(
    ("action", "allowed"),
    [
        ("search", "query, after, before"),
        ("consolidate", "ids, content"),
        ("update", "id, content"),
        ("delete", "id"),
        ("protect", "id"),
        ("complete", "summary"),
    ],
)
def test_an_unknown_parameter_is_refused_with_the_allowed_ones(
    tool, ids, action, allowed, subtests
):
    call = {"query": "a", "ids": ids[:2], "id": ids[0], "content": "new", "summary": "Fine."}
    taken = {name: call[name] for name in allowed.split(", ") if name in call}

    for unknown in ["force", "self", "session", "", "Id", "constitutional"]:
        with subtests.test(unknown=unknown):
            error = refused(tool, **{"action": action, **taken, unknown: None})
            assert error == f"unknown parameter for {action}; it takes: {allowed}"


def test_a_parameter_of_another_action_is_refused(tool, ids):
    error = refused(tool, action="delete", id=ids[0], content="x")

    assert error == "unknown parameter for delete; it takes: id"


def test_a_parameter_that_is_null_is_as_good_as_none(tool, ids):
    result = tool.execute(action="delete", id=ids[0], ids=None, content=None, query=None)

    assert result == {"type": "deleted", "id": ids[0]}


@pytest.mark.parametrize(
    "spelled", [lambda id_: id_, str, "#{}".format, " {} ".format, " #{}".format, lambda id_: [id_]]
)
@pytest.mark.parametrize("action", ["delete", "protect", "update"])
def test_one_id_is_understood_as_models_write_it(tool, ids, action, spelled):
    more = {"content": text_of(25)} if action == "update" else {}

    result = tool.execute(action=action, id=spelled(ids[0]), **more)

    assert result["id"] == ids[0]


@pytest.mark.parametrize(
    "spelled",
    [
        list,
        lambda ids: ", ".join(str(id_) for id_ in ids),
        lambda ids: ",".join(f"#{id_}" for id_ in ids),
        lambda ids: [str(ids[0]), f"#{ids[1]}"],
        lambda ids: [*ids, ids[0], str(ids[1])],
    ],
)
def test_several_ids_are_understood_as_models_write_them(tool, ids, spelled):
    result = tool.execute(action="consolidate", ids=spelled(ids[:2]), content=text_of(50))

    assert (result["type"], result["merged_count"]) == ("consolidated", 2)


NO_IDS = [
    *(True, False, 0, -1, 1.0, 1e3, 10**18, {}, {"id": 7}, [[7]], [7, None], [True, 7]),
    *("#", "1abc", "7.0", "seven", "-7", "٧", "7;9", "##7", "7,", "1" * 400),
]


def test_what_is_no_id_is_refused_and_never_repaired(tool, subtests):
    for bad in NO_IDS:
        for call in [
            {"action": "delete", "id": bad},
            {"action": "protect", "id": bad},
            {"action": "update", "id": bad, "content": "new"},
            {"action": "consolidate", "ids": bad, "content": "new"},
        ]:
            with subtests.test(call=call):
                assert "memory id" in refused(tool, **call)


@pytest.mark.parametrize("action", ["delete", "protect", "update"])
def test_one_memory_a_call(tool, ids, action):
    more = {"content": "new"} if action == "update" else {}

    error = refused(tool, action=action, id=ids[:2], **more)

    assert error == "one memory a call: id takes a single memory id"


@settings(
    max_examples=150,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    action=st.sampled_from([*ACTIONS, *ACTIONS]) | JSON,
    params=st.dictionaries(NAMES | st.text(max_size=8), JSON, max_size=4),
    picks=st.dictionaries(
        st.sampled_from(["id", "ids"]), st.lists(st.integers(0, 19), max_size=3), max_size=2
    ),
)
def test_whatever_a_model_sends_the_worst_is_an_error_that_changes_nothing(
    agent, ids, action, params, picks
):
    params = {name: value for name, value in params.items() if name != "action"}
    params |= {name: [ids[pick] for pick in chosen] for name, chosen in picks.items()}
    live = RefinementSession.live_of(agent) or factories.session(agent)
    tool = RefinementTool(live)
    db.session.commit()
    before = sql.snapshot()

    result = tool.execute(action=action, **params)

    assert json.loads(json.dumps(result))["type"] == result["type"]
    assert result["type"] != "error" or sql.snapshot() == before


# -- search ----------------------------------------------------------------------------------------


def searched(tool, **call):
    return tool.execute(action="search", **call)


def test_a_search_returns_ledger_entries(app):
    agent = factories.agent()
    found = factories.memory(agent, "A canary sang", created_at=NOW, tags=["voice"])
    factories.memory(agent, "nothing else")
    tool = RefinementTool(factories.session(agent))

    result = searched(tool, query="  CANARY ")

    assert result == {
        "type": "search_results",
        "query": "CANARY",
        "count": 1,
        "results": [
            {
                "id": found.id,
                "date": "2026-03-04",
                "tokens": 4,
                "constitutional": False,
                "tags": ["voice"],
                "content": "A canary sang",
            }
        ],
    }


def test_a_query_is_found_as_it_stands_whatever_its_case(app, subtests):
    agent = factories.agent(
        "100% sure", "snake_case", "back\\slash", "a* b", "a. b", "'; -- x", "l'été", "STRASSE"
    )
    tool = RefinementTool(factories.session(agent))

    for query, contents in [
        ("%", ["100% sure"]),
        ("_", ["snake_case"]),
        ("\\", ["back\\slash"]),
        ("a*", ["a* b"]),
        (".", ["a. b"]),
        ("s%sure", []),
        ("'; --", ["'; -- x"]),
        ("ÉTÉ", ["l'été"]),
        ("straße", ["STRASSE"]),
    ]:
        with subtests.test(query=query):
            found = searched(tool, query=query)["results"]
            assert [entry["content"] for entry in found] == contents


def test_results_come_by_date_then_id_at_most_20_and_all_are_counted(app):
    agent = factories.agent()
    late = [factories.memory(agent, f"a {n}", created_at=NOW) for n in range(15)]
    early = [
        factories.memory(agent, f"b {n}", created_at=NOW - timedelta(days=1)) for n in range(10)
    ]
    tool = RefinementTool(factories.session(agent))

    result = searched(tool, after="2000-01-01")

    expected = [memory.id for memory in [*early, *late]][:20]
    assert (result["count"], [entry["id"] for entry in result["results"]]) == (25, expected)


def test_dates_are_utc_from_inclusive_to_exclusive(app, subtests):
    agent = factories.agent()
    midnight = datetime(2026, 3, 4, tzinfo=UTC)
    made = {
        factories.memory(agent, created_at=midnight + timedelta(hours=each)).id: each
        for each in (-12, 0, 12, 24)
    }
    tool = RefinementTool(factories.session(agent))

    for after, before, hours in [
        ("2026-03-04", None, [0, 12, 24]),
        (None, "2026-03-04", [-12]),
        ("2026-03-04", "2026-03-05", [0, 12]),
        ("2026-03-05", "2026-03-05", []),
        ("2026-03-04T12:00:00", None, [12, 24]),
        ("2026-03-04T12:00:00Z", None, [12, 24]),
        (None, "2026-03-04T12:00:00Z", [-12, 0]),
        ("2026-03-04T14:00:01+02:00", None, [24]),
    ]:
        with subtests.test(after=after, before=before):
            result = searched(tool, after=after, before=before)
            assert [made[entry["id"]] for entry in result["results"]] == hours
            assert result["query"] is None


def test_query_and_dates_go_together(app):
    agent = factories.agent()
    for days in (0, 1):
        factories.memory(agent, f"canary {days}", created_at=NOW + timedelta(days=days))
    factories.memory(agent, "other", created_at=NOW)
    tool = RefinementTool(factories.session(agent))

    result = searched(tool, query="canary", before="2026-03-05")

    assert [entry["content"] for entry in result["results"]] == ["canary 0"]


@pytest.mark.parametrize("name", ["after", "before"])
def test_what_is_no_date_is_refused(tool, name, subtests):
    for date in [
        *("yesterday", "2026-13-01", "01.03.2026", 20260301, True, [], "2026-03-01\x00"),
        *("0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59"),
    ]:
        with subtests.test(date=date):
            error = refused(tool, action="search", **{name: date})
            assert error == f"{name} must be an ISO date such as 2026-03-01"


def test_a_bad_query_is_refused(tool, subtests):
    for query, error in [
        ("x" * 501, "query has 501 characters; at most 500 are allowed"),
        (7, "query must be text"),
        (["a"], "query must be text"),
        ("\x00", "query must not contain a NUL character"),
        ("\ud800", "query must be valid Unicode"),
    ]:
        with subtests.test(error=error):
            assert refused(tool, action="search", query=query).startswith(error)


def test_a_query_may_have_500_characters(tool):
    assert searched(tool, query="x" * 500)["count"] == 0


def test_a_search_is_neither_counted_nor_recorded(tool, agent):
    before = len(factories.records(agent))

    searched(tool, query="abc")

    assert tool.stats == NOTHING
    assert len(factories.records(agent)) == before


# -- consolidate -----------------------------------------------------------------------------------


def test_consolidate_merges_into_one_new_memory(app):
    agent = factories.agent()
    sources = [
        factories.memory(agent, text_of(10), created_at=NOW, tags=["relational"]),
        factories.memory(agent, text_of(10), created_at=NOW - timedelta(days=3)),
    ]
    tool = RefinementTool(factories.session(agent))

    result = tool.execute(
        action="consolidate", ids=[source.id for source in sources], content="  " + "x" * 80 + "\n"
    )

    merged = memory(result["id"])
    assert result == {
        "type": "consolidated",
        "id": merged.id,
        "merged_count": 2,
        "new_content": "x" * 80,
    }
    assert (merged.created_at, merged.tags) == (NOW - timedelta(days=3), ["relational"])
    assert [source.discarded for source in sources] == [True, True]


@pytest.mark.parametrize("count", [1, 2])
def test_consolidate_needs_two_distinct_ids(tool, ids, count):
    error = refused(tool, action="consolidate", ids=[ids[0]] * count, content="new")

    assert error == "consolidate requires at least 2 memory IDs"


def test_consolidate_with_one_unknown_id_merges_nothing(tool, ids):
    error = refused(tool, action="consolidate", ids=[*ids[:2], 999999999], content="new")

    assert error.startswith("Memory #999999999 not found")


def test_consolidate_names_every_locked_memory(tool, ids):
    for id_ in ids[:2]:
        tool.execute(action="protect", id=id_)

    error = refused(tool, action="consolidate", ids=ids[:3], content="new")

    assert error == f"Cannot consolidate constitutional memories: {ids[0]}, {ids[1]}"


# -- update, delete, protect -----------------------------------------------------------------------


def test_update_rewrites_one_memory(tool, ids):
    result = tool.execute(action="update", id=ids[0], content=" " + "y" * 100 + " ")

    assert result == {"type": "updated", "id": ids[0], "content": "y" * 100}
    assert content(ids[0]) == "y" * 100


@pytest.mark.parametrize("margin", ["", " \n"])
def test_update_must_differ(tool, ids, margin):
    same = content(ids[0]) + margin
    db.session.commit()

    error = refused(tool, action="update", id=ids[0], content=same)

    assert error.startswith(f"Memory #{ids[0]} already has this content")


def test_bad_content_is_refused(tool, ids, subtests):
    for bad, error in [
        ("x" * 10_001, "content has 10,001 characters; at most 10,000 are allowed"),
        (7, "content must be text"),
        ({"text": "x"}, "content must be text"),
        ("\x00", "content must not contain a NUL character"),
        ("\udfff", "content must be valid Unicode"),
    ]:
        for call in [{"action": "update", "id": ids[0]}, {"action": "consolidate", "ids": ids[:2]}]:
            with subtests.test(error=error, action=call["action"]):
                assert refused(tool, **call, content=bad).startswith(error)


def test_content_of_10000_characters_is_taken(tool, ids):
    result = tool.execute(action="update", id=ids[0], content="x" * 10_000)

    assert result["type"] == "updated"


def test_delete_discards_one_memory(tool, ids):
    result = tool.execute(action="delete", id=ids[0])

    assert result == {"type": "deleted", "id": ids[0]}
    assert memory(ids[0]).discarded


def test_protect_makes_a_memory_constitutional(tool, ids):
    result = tool.execute(action="protect", id=ids[0])

    assert result == {"type": "protected", "id": ids[0], "content": content(ids[0])}
    assert memory(ids[0]).constitutional


def test_protecting_again_says_the_same_and_records_nothing(tool, ids, agent):
    first = tool.execute(action="protect", id=ids[0])
    before = sql.snapshot()

    second = tool.execute(action="protect", id=ids[0])

    assert second == first
    assert sql.snapshot() == before


@pytest.mark.parametrize(
    ("call", "error"),
    [
        ({"action": "delete"}, "Cannot delete constitutional memory #{}"),
        ({"action": "update", "content": "new"}, "Cannot update constitutional memory #{}"),
    ],
)
def test_a_constitutional_memory_is_refused_by_its_id(tool, ids, call, error):
    tool.execute(action="protect", id=ids[0])

    assert refused(tool, id=ids[0], **call) == error.format(ids[0])


@pytest.mark.parametrize("tag", ["audio", "somatic", "voice"])
def test_a_tagged_memory_is_immutable(app, tag):
    agent = factories.agent("another")
    tagged = factories.memory(agent, tags=[tag]).id
    other = db.session.scalar(agent.ledger.shown(clock.now())).id
    tool = RefinementTool(factories.session(agent))

    errors = [
        refused(tool, action="delete", id=tagged),
        refused(tool, action="update", id=tagged, content="new"),
        refused(tool, action="consolidate", ids=[tagged, other], content="new"),
    ]

    assert errors == [
        f"Cannot delete immutable memory #{tagged}",
        f"Cannot update immutable memory #{tagged}",
        f"Cannot consolidate immutable memories: {tagged}",
    ]


@pytest.mark.parametrize("kind", ["unknown", "another agent's", "journal", "discarded"])
def test_what_is_not_the_agents_kept_core_memory_is_simply_not_found(agent, ids, kind):
    absent = {
        "unknown": 10**17,
        "another agent's": factories.memory(factories.agent()).id,
        "journal": factories.memory(agent, memory_type="journal").id,
        "discarded": factories.memory(agent, discarded_at=NOW).id,
    }[kind]
    tool = RefinementTool(factories.session(agent))

    errors = {
        refused(tool, action="delete", id=absent),
        refused(tool, action="protect", id=absent),
        refused(tool, action="update", id=absent, content="new"),
        refused(tool, action="consolidate", ids=[absent, ids[0]], content="new"),
    }

    assert errors == {f"Memory #{absent} not found; nothing was changed"}


def test_the_eleventh_mutation_is_refused(tool, ids):
    for n in range(10):
        assert tool.execute(action="update", id=ids[n], content=text_of(25))["type"] == "updated"

    error = refused(tool, action="delete", id=ids[10])

    assert error.startswith("Hard cap reached: 10 mutating operations performed")
    assert tool.execute(action="protect", id=ids[10])["type"] == "protected"
    assert tool.execute(action="complete", summary="Done.")["type"] == "refinement_complete"


def test_errors_do_not_use_up_the_cap(tool, ids):
    for _ in range(12):
        tool.execute(action="delete", id=999999999)

    assert tool.execute(action="delete", id=ids[0])["type"] == "deleted"


def test_a_memory_that_changed_is_shown_as_it_stands_and_the_second_try_works(tool, ids):
    memory(ids[0]).content = "rewritten by somebody else " + "x" * 100
    db.session.commit()

    first = tool.execute(action="delete", id=ids[0])
    was = memory(ids[0]).discarded
    second = tool.execute(action="delete", id=ids[0])

    assert first["type"] == "error"
    assert "has changed since you last saw it" in first["error"]
    assert (first["id"], first["constitutional"]) == (ids[0], False)
    assert first["content"].startswith("rewritten by somebody else")
    assert json.loads(json.dumps(first)) == first
    assert (was, second) == (False, {"type": "deleted", "id": ids[0]})


def test_what_was_saved_since_the_snapshot_cannot_be_changed(tool, agent):
    new = factories.memory(agent, "a canary").id
    db.session.commit()
    searched(tool, query="canary")

    assert "was not there when this session began" in refused(tool, action="delete", id=new)


# -- complete and the breaker ----------------------------------------------------------------------


def test_complete_ends_the_session_with_measured_figures(app):
    agent = factories.agent()
    gone, *_ = factories.ledger(agent, *([100] + [25] * 99))
    tool = RefinementTool(factories.session(agent))
    tool.execute(action="delete", id=gone.id)

    result = tool.execute(action="complete", summary=" I deleted 50 memories. ")

    assert result == {
        "type": "refinement_complete",
        "summary": (
            "Refinement session: 100 → 99 memories, 100 tokens saved (1 deleted). "
            "I deleted 50 memories."
        ),
        "stats": {"consolidated": 0, "updated": 0, "deleted": 1, "protected": 0},
    }
    assert sql.value("SELECT status FROM refinement_sessions") == "completed"


@pytest.mark.parametrize(
    ("summary", "error"),
    [
        ("x" * 2_001, "summary has 2,001 characters; at most 2,000 are allowed"),
        (7, "summary must be text"),
        ("\x00", "summary must not contain a NUL character"),
    ],
)
def test_a_bad_summary_is_refused_and_the_session_goes_on(tool, ids, summary, error):
    assert refused(tool, action="complete", summary=summary) == error
    assert tool.execute(action="delete", id=ids[0])["type"] == "deleted"


def test_a_summary_may_have_2000_characters(tool):
    result = tool.execute(action="complete", summary="x" * 2_000)

    assert result["summary"].endswith("x" * 2_000)


def test_removing_exactly_what_may_go_stands(tool, ids):
    results = [tool.execute(action="delete", id=id_) for id_ in ids[:5]]

    assert [result["type"] for result in results] == ["deleted"] * 5


def trip(tool, ids):
    for id_ in ids[:5]:
        tool.execute(action="delete", id=id_)
    return tool.execute(action="delete", id=ids[5])


def test_the_call_that_goes_too_far_says_that_all_was_undone(tool, ids):
    result = trip(tool, ids)

    assert result == {
        "type": "refinement_rolled_back",
        "reason": (
            "All changes of this session were undone: "
            "it would have removed 150 of 500 tokens; at most 125 may go"
        ),
        "stats": {"consolidated": 0, "updated": 0, "deleted": 6, "protected": 0},
    }
    assert tool.stats == result["stats"]
    assert not any(memory(id_).discarded for id_ in ids)


@pytest.mark.parametrize(
    "call",
    [
        {"action": "update", "content": "x"},
        {"action": "consolidate", "content": "x"},
        {"action": "complete", "summary": "Done."},
    ],
)
def test_any_call_may_be_the_one_that_goes_too_far(tool, ids, call):
    for id_ in ids[:5]:
        tool.execute(action="delete", id=id_)
    if call["action"] == "complete":
        sql.run("UPDATE session_entries SET counting_tokens = 0")
    call |= {"update": {"id": ids[5]}, "consolidate": {"ids": ids[5:7]}}.get(call["action"], {})

    result = tool.execute(**call)

    assert result["type"] == "refinement_rolled_back"
    assert sql.value("SELECT count(*) FROM agent_memories WHERE discarded_at IS NULL") >= 21


def test_a_merge_of_more_memories_than_a_memory_can_name_is_rolled_back_like_any_other(app):
    agent = factories.agent()
    ids = [factories.memory(agent, f"memory {n}", id=10**15 + n).id for n in range(600)]
    tool = RefinementTool(factories.session(agent))

    result = tool.execute(action="consolidate", ids=ids, content="one")

    assert result["type"] == "refinement_rolled_back"
    assert agent.ledger.figures()[0] == 600


CALLS = [
    {"action": "search", "query": "a"},
    {"action": "consolidate", "ids": [1, 2], "content": "x"},
    {"action": "update", "id": 1, "content": "x"},
    {"action": "delete", "id": 1},
    {"action": "protect", "id": 1},
    {"action": "complete", "summary": "x"},
    {"action": "nonsense"},
    {"action": "delete"},
    {"action": "delete", "id": "junk"},
    {},
]


@pytest.mark.parametrize("end", ["completed", "rolled_back", "given up", "another worker"])
def test_after_the_end_every_call_is_terminated(tool, ids, end, subtests):
    if end == "completed":
        tool.execute(action="complete", summary="Done.")
    elif end == "rolled_back":
        trip(tool, ids)
    elif end == "given up":
        db.session.scalar(select(RefinementSession)).give_up("lost")
        db.session.commit()
    else:
        sql.run("UPDATE refinement_sessions SET lease_token = gen_random_uuid()")

    for call in CALLS:
        with subtests.test(call=call):
            assert refused(tool, **call).startswith("Session terminated")


def test_a_session_that_waits_in_the_queue_takes_no_calls(agent, ids):
    tool = RefinementTool(RefinementSession.queue(agent, "manual"))
    db.session.commit()

    assert refused(tool, action="delete", id=ids[0]).startswith("Session terminated (queued)")


# -- one call, one transaction ---------------------------------------------------------------------


@pytest.mark.parametrize("action", ["consolidate", "update", "delete", "protect", "complete"])
def test_where_the_record_fails_nothing_at_all_is_committed(tool, ids, broken_audit, action):
    broken_audit("memory_refinement_")
    call = {
        "consolidate": {"ids": ids[:2], "content": text_of(50)},
        "update": {"id": ids[0], "content": text_of(25)},
        "complete": {"summary": "Done."},
    }.get(action, {"id": ids[0]})
    db.session.commit()
    before = sql.snapshot()

    with pytest.raises(DBAPIError, match="the disk is full"):
        tool.execute(action=action, **call)
    db.session.commit()

    assert sql.snapshot() == before
    assert tool.stats == NOTHING


def test_where_the_rollback_fails_the_call_that_tripped_is_not_committed_either(
    tool, ids, broken_audit
):
    broken_audit("memory_refinement_rollback")
    for id_ in ids[:5]:
        tool.execute(action="delete", id=id_)
    before = sql.snapshot()

    with pytest.raises(DBAPIError, match="the disk is full"):
        tool.execute(action="delete", id=ids[5])
    db.session.commit()

    assert sql.snapshot() == before


def test_a_blank_parameter_is_a_missing_one(tool, subtests):
    for call, missing in [
        ({"action": "search"}, "query"),
        ({"action": "update", "id": 1}, "content"),
        ({"action": "delete"}, "id"),
        ({"action": "complete"}, "summary"),
    ]:
        for blank in ["", "  ", "\n", None]:
            with subtests.test(action=call["action"], blank=blank):
                error = refused(tool, **call, **{missing: blank})
                assert error.startswith(f"{missing} is required for {call['action']}")


def test_no_ids_are_too_few(tool):
    error = refused(tool, action="consolidate", ids=[], content="new")

    assert error == "consolidate requires at least 2 memory IDs"


def test_very_many_unknown_ids_are_told_in_short(tool):
    error = refused(tool, action="consolidate", ids=list(range(10**6, 10**6 + 900)), content="new")

    assert "and 880 more not found" in error


@pytest.mark.parametrize("action", ["update", "consolidate"])
def test_nothing_becomes_an_exact_copy_of_another_memory(tool, ids, action):
    copy = f" {content(ids[5]).upper()} "
    targets = {"id": ids[0]} if action == "update" else {"ids": ids[:2]}
    db.session.commit()

    error = refused(tool, action=action, content=copy, **targets)

    assert error.startswith(f"Memory #{ids[5]} already has exactly this content")


def test_a_merge_may_keep_the_text_of_a_source(tool, ids):
    kept = content(ids[0])
    db.session.commit()

    result = tool.execute(action="consolidate", ids=ids[:2], content=kept)

    assert (result["type"], result["new_content"]) == ("consolidated", kept)
