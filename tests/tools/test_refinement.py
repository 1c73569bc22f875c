import json
import uuid
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from sqlalchemy import select
from sqlalchemy.exc import DBAPIError

from refine.errors import RowAltered
from refine.extensions import db
from refine.models import AgentMemory, RefinementSession
from refine.models.runs.session import breaker
from refine.models.runs.session.session import OPERATIONS
from refine.refinement import time_machine
from refine.refinement.prompting import brief
from refine.tools import RefinementTool
from refine.tools.refinement import ACTIONS, DEFINITION
from refine.web.presenting import actor
from tests import factories, sql
from tests.factories import text_of
from tests.tools.arguments import JSON, NAMES

NOW = datetime(2026, 3, 4, 12, tzinfo=UTC)
NOTHING = dict.fromkeys((each.stat for each in OPERATIONS.values()), 0)
SEARCH = {"action": "search", "query": "words that no memory has"}


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


def memory(memory_id):
    return db.session.get_one(AgentMemory, memory_id, populate_existing=True)


def content(memory_id):
    return memory(memory_id).content


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


def calls_of(ids, content="new"):
    """Every mutating action on the first memory; consolidate takes all of them."""
    return {
        "consolidate": {"action": "consolidate", "ids": ids, "content": content},
        "update": {"action": "update", "id": ids[0], "content": content},
        "delete": {"action": "delete", "id": ids[0]},
        "protect": {"action": "protect", "id": ids[0]},
    }


def states(agent):
    db.session.commit()
    return {memory.id: memory.state_digest for memory in db.session.scalars(agent.ledger.core())}


# -- every operation -------------------------------------------------------------------------------


def test_every_operation_is_told_and_recorded_as_the_agents_own(agent):
    told = brief(factories.session(agent))

    assert {*OPERATIONS, "search", "complete"} == set(ACTIONS)
    for name in OPERATIONS:
        assert f"`{name}`" in told
        assert actor(None, None, "Ada", f"memory_refinement_{name}") == "Ada"


@pytest.mark.parametrize("is_rolled_back", [False, True])
@pytest.mark.parametrize("name", OPERATIONS)
def test_every_operation_can_be_taken_back(agent, ids, name, is_rolled_back):
    session, before = factories.session(agent), states(agent)
    tool = RefinementTool(session)

    result = tool.execute(**calls_of(ids[:2], text_of(25))[name])

    assert result["type"] == OPERATIONS[name].stat
    assert tool.stats[OPERATIONS[name].stat] > 0
    assert session.mutation_count == OPERATIONS[name].is_mutation
    assert states(agent) != before
    if is_rolled_back:
        breaker.roll_back(session, 501, NOW)
    else:
        tool.execute(action="complete", summary="Done.")
        time_machine.undo(session, through="dashboard")
    assert states(agent) == before


# -- every call ------------------------------------------------------------------------------------


def test_every_action_answers_in_json_and_is_counted(tool, ids):
    merged, rewritten = text_of(75), text_of(25)
    protected = content(ids[5])
    stats = [tool.stats]
    stats[0]["deleted"] = 9  # a copy

    for call, expected in [
        (
            {"action": "consolidate", "ids": ids[:3], "content": f"  {merged}\n"},
            {"type": "consolidated", "merged_count": 3, "new_content": merged},
        ),
        (
            {"action": "update", "id": ids[3], "content": f" {rewritten} "},
            {"type": "updated", "id": ids[3], "content": rewritten},
        ),
        ({"action": "delete", "id": ids[4]}, {"type": "deleted", "id": ids[4]}),
        (
            {"action": "protect", "id": ids[5]},
            {"type": "protected", "id": ids[5], "content": protected},
        ),
        (SEARCH, {"type": "search_results", "count": 0}),
    ]:
        result = tool.execute(**call)
        assert json.loads(json.dumps(result)) == result
        assert result.items() >= expected.items()

    assert not db.session().in_transaction()
    assert sql.value("SELECT mutation_count FROM refinement_sessions") == 3
    assert tool.stats == {"consolidated": 3, "updated": 1, "deleted": 1, "protected": 1}
    assert content(ids[3]) == rewritten
    assert memory(ids[4]).discarded
    assert memory(ids[5]).constitutional


def test_the_definition_names_every_action_and_parameter():
    properties = DEFINITION["function"]["parameters"]["properties"]

    assert properties["action"]["enum"] == list(ACTIONS)
    assert set(properties) - {"action"} == {
        name for required, optional in ACTIONS.values() for name in (*required, *optional)
    }
    assert json.loads(json.dumps(DEFINITION)) == DEFINITION


# -- actions and parameters ------------------------------------------------------------------------


def nested(levels):
    value = []
    for _ in range(levels):
        value = [value]
    return value


def test_an_unknown_or_missing_action_names_the_allowed_ones(tool, ids, subtests):
    for action, error in [
        ("x", "Invalid action 'x'"),
        ("it's\nbad", "Invalid action 'it's\nbad'"),
        ("x" * 10_000, f"Invalid action '{'x' * 60}'"),
        (None, "action is required"),
        (["delete"], "Invalid action '['delete']'"),
        (10**5_000, "Invalid action 'a long number'"),
        (nested(100_000), "Invalid action '[[[[[[[...]]]]]]]'"),
    ]:
        with subtests.test(error=error):
            assert tool.execute(action=action, id=ids[0]) == {
                "type": "error",
                "error": error,
                "allowed_actions": list(ACTIONS),
                "operations_left": 10,
                "tokens_left": 125,
            }
    assert refused(tool) == "action is required"


def test_a_missing_or_blank_parameter_is_named(tool, subtests):
    for call, missing in [
        ({"action": "search"}, "query"),
        ({"action": "consolidate"}, "ids"),
        ({"action": "consolidate", "ids": "1, 2"}, "content"),
        ({"action": "update", "content": "x"}, "id"),
        ({"action": "update", "id": 1}, "content"),
        ({"action": "delete"}, "id"),
        ({"action": "protect"}, "id"),
        ({"action": "complete"}, "summary"),
    ]:
        for blank in ({}, *({missing: blank} for blank in ("  ", None))):
            with subtests.test(call=call, blank=blank):
                error = refused(tool, **call, **blank)
                assert error.startswith(f"{missing} is required for {call['action']}")


def test_an_unknown_parameter_is_refused_with_the_allowed_ones(tool, ids, subtests):
    for call in (*calls_of(ids[:2]).values(), SEARCH, {"action": "complete", "summary": "Fine."}):
        action = call["action"]
        allowed = ", ".join(name for names in ACTIONS[action] for name in names)
        of_another = "query" if action != "search" else "summary"
        for unknown, value in (("force", None), ("self", None), ("", None), (of_another, "x")):
            with subtests.test(action=action, unknown=unknown):
                error = refused(tool, **{**call, unknown: value})
                assert error == f"unknown parameter; {action} takes: {allowed}"


def test_a_known_parameter_of_another_action_may_be_null(tool, ids):
    result = tool.execute(action="delete", id=ids[0], ids=None, content=None, query=None)

    assert (result["type"], result["id"]) == ("deleted", ids[0])


def test_ids_are_understood_as_models_write_them(tool, ids):
    first, second, third, *_ = ids

    assert tool.execute(action="update", id=f" #{first}", content=text_of(25))["id"] == first
    assert tool.execute(action="protect", id=[str(third)])["id"] == third
    merged = tool.execute(action="consolidate", ids=f"#{first},{second}", content=text_of(50))
    assert (merged["type"], merged["merged_count"]) == ("consolidated", 2)


NO_IDS = [
    *(True, 0, 1.0, 10**18, {"id": 7}, [[7]], [7, None], "1abc", "-7", "٧", "1" * 400),
]


def test_an_invalid_id_is_refused_and_never_repaired(tool, subtests):
    before = sql.snapshot()
    for bad in NO_IDS:
        calls = calls_of([bad])
        calls["consolidate"]["ids"] = bad
        for call in calls.values():
            with subtests.test(call=call):
                result = tool.execute(**call)
                assert result["type"] == "error"
                assert "memory id" in result["error"]
    assert sql.snapshot() == before


def test_update_delete_and_protect_take_one_memory_a_call(tool, ids, subtests):
    for action in ("delete", "protect", "update"):
        with subtests.test(action=action):
            error = refused(tool, **{**calls_of(ids)[action], "id": ids[:2]})
            assert error == "id takes a single memory id"


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
def test_no_call_raises_and_an_error_changes_nothing(agent, ids, action, params, picks):
    params = {name: value for name, value in params.items() if name != "action"}
    params |= {name: [ids[pick] for pick in chosen] for name, chosen in picks.items()}
    live = RefinementSession.live_of(agent) or factories.session(agent)
    tool = RefinementTool(live)
    db.session.commit()
    before = sql.snapshot()

    result = tool.execute(action=action, **params)

    assert json.loads(json.dumps(result))["type"] == result["type"]
    judged = [name for name in tool.stats if name.startswith("refused_")]
    assert result["type"] != "error" or judged or sql.snapshot() == before


# -- search ----------------------------------------------------------------------------------------


def searched(tool, **call):
    return tool.execute(action="search", **call)


def test_a_search_returns_ledger_entries_and_is_neither_counted_nor_recorded(app):
    agent = factories.agent()
    found = factories.memory(agent, "A canary sang", created_at=NOW, tags=["voice"])
    factories.memory(agent, "nothing else")
    tool = RefinementTool(factories.session(agent))
    before = len(factories.records(agent))

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
        "operations_left": 10,
        "tokens_left": 1,
    }
    assert tool.stats == NOTHING
    assert len(factories.records(agent)) == before


def test_a_query_is_found_literally_whatever_its_case(app, subtests):
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
        ("'; --", ["'; -- x"]),
        ("straße", ["STRASSE"]),
    ]:
        with subtests.test(query=query[:9]):
            found = searched(tool, query=query)["results"]
            assert [entry["content"] for entry in found] == contents


def test_at_most_20_results_come_by_date_then_id_and_all_are_counted(app):
    agent = factories.agent()
    late = factories.ledger(agent, *[1] * 15, created_at=NOW)
    early = factories.ledger(agent, *[1] * 10, created_at=NOW - timedelta(days=1))
    tool = RefinementTool(factories.session(agent))

    result = searched(tool, after="2000-01-01")

    expected = [memory.id for memory in [*early, *late]][:20]
    assert (result["count"], [entry["id"] for entry in result["results"]]) == (25, expected)


def test_dates_are_in_utc_from_inclusive_to_exclusive_and_combine_with_a_query(app, subtests):
    agent = factories.agent()
    midnight = datetime(2026, 3, 4, tzinfo=UTC)
    made = {
        factories.memory(
            agent, f"canary {each}", created_at=midnight + timedelta(hours=each)
        ).id: each
        for each in (-12, 0, 12, 24)
    }
    tool = RefinementTool(factories.session(agent))

    for query, after, before, hours in [
        (None, "2026-03-04", "2026-03-05", [0, 12]),
        (None, "2026-03-05", "2026-03-05", []),
        (None, None, "2026-03-04T12:00:00Z", [-12, 0]),
        (None, "2026-03-04T14:00:01+02:00", None, [24]),
        ("12", "2026-03-04", None, [12]),
    ]:
        with subtests.test(query=query, after=after, before=before):
            result = searched(tool, query=query, after=after, before=before)
            assert [made[entry["id"]] for entry in result["results"]] == hours
            assert result["query"] == query


def test_an_invalid_date_or_query_is_refused(tool, subtests):
    dates = ["yesterday", 20260301, [], "0001-01-01T00:00:00+23:59"]
    for name, value, error in [
        *(
            (name, date, f"{name} must be an ISO date such as 2026-03-01")
            for name in ("after", "before")
            for date in dates
        ),
        ("query", "x" * 501, "query has 501 characters; at most 500 are allowed"),
        ("query", ["a"], "query must be text"),
        ("query", "\x00", "query must not contain a NUL character"),
    ]:
        with subtests.test(name=name, value=str(value)[:30]):
            assert refused(tool, action="search", **{name: value}).startswith(error)


# -- refused edits ---------------------------------------------------------------------------------


def test_an_edit_that_a_rule_forbids_is_refused_with_the_reason(tool, ids, agent, subtests):
    late = factories.memory(agent)
    db.session.commit()
    tool.execute(action="protect", id=ids[0])
    copy, own = f" {content(ids[5]).title()} ", content(ids[1])
    db.session.commit()
    cases = [
        ("update", ids[1:3], own, f"Memory #{ids[1]} already has this content"),
        ("consolidate", [ids[1]] * 2, "new", "consolidate requires at least 2 memory IDs"),
        ("update", ids[1:3], copy, f"Memory #{ids[5]} already has exactly this content"),
        ("consolidate", ids[1:3], copy, f"Memory #{ids[5]} already has exactly this content"),
        ("delete", ids[:1], "new", f"Cannot delete constitutional memory #{ids[0]}"),
        ("protect", [10**17], "new", f"Memory #{10**17} not found; nothing was changed"),
        ("delete", [late.id], "new", "was not there when this session began"),
        ("consolidate", list(range(10**6, 10**6 + 900)), "new", "at most 8 memory IDs"),
        ("update", ids[1:3], "x" * 10_001, "content has 10,001 characters; at most 10,000"),
        ("consolidate", ids[1:3], 7, "content must be text"),
    ]
    for action, chosen, text, error in cases:
        with subtests.test(action=action, error=error):
            assert error in refused(tool, **calls_of(chosen, text)[action])


def test_a_merge_may_keep_the_text_of_a_source(tool, ids):
    kept = content(ids[0])
    db.session.commit()

    result = tool.execute(action="consolidate", ids=ids[:2], content=kept)

    assert (result["type"], result["new_content"]) == ("consolidated", kept)


def test_the_cap_counts_mutations_but_no_errors(tool, ids):
    for n in range(10):
        assert tool.execute(action="delete", id=999999999)["type"] == "error"
        assert tool.execute(action="update", id=ids[n], content=text_of(25))["type"] == "updated"

    error = refused(tool, action="delete", id=ids[10])

    assert error.startswith("Hard cap reached: 10 mutating operations performed")
    assert RefinementTool.MAX_MUTATIONS == 10
    assert tool.execute(action="protect", id=ids[10])["type"] == "protected"
    assert tool.execute(action="complete", summary="Done.")["type"] == "refinement_complete"


def test_shows_a_changed_memory_as_it_is_now_and_accepts_the_second_try(tool, ids):
    memory(ids[0]).content = content(ids[1]) + " (again)"
    db.session.commit()

    first = tool.execute(action="delete", id=ids[0])
    was = memory(ids[0]).discarded
    second = tool.execute(action="delete", id=ids[0])

    assert first["type"] == "error"
    assert "has changed since you last saw it" in first["error"]
    assert (first["id"], first["constitutional"]) == (ids[0], False)
    assert first["content"].endswith("(again)")
    assert json.loads(json.dumps(first)) == first
    assert (was, second["type"]) == (False, "deleted")


def test_the_third_refusal_of_what_an_edit_does_advises_to_leave_it(tool, ids):
    long, lie = ({"content": text} for text in ("x" * 2_000, "Mira has 17 hens"))
    calls = [{"ids": ids[:2][::way], **text} for way in (1, -1) for text in (long, lie, lie)]

    errors = [tool.execute(action="consolidate", **call)["error"] for call in calls]

    assert [each.endswith("leave it as it is") for each in errors] == [False] * 4 + [True] * 2
    assert tool.stats == {**NOTHING, "refused_doubtful": 4}


# -- reasons ---------------------------------------------------------------------------------------


def test_what_is_edited_with_a_reason_is_found_as_retired(agent):
    old = factories.memory(agent, "Mira lives in Bonn", created_at=NOW)
    wrong = factories.memory(agent, "Mira's number is 555 0142", created_at=NOW)
    right = factories.memory(agent, "Mira's number is 555 0143")
    tool = RefinementTool(factories.session(agent))

    updated = tool.execute(
        action="update", id=old.id, content="Mira lives in Köln", reason="outdated"
    )
    deleted = tool.execute(action="delete", id=wrong.id, reason="wrong", by=f"#{right.id}")

    assert updated.items() >= {"type": "updated", "retired": old.id}.items()
    assert (deleted["type"], deleted["id"]) == ("deleted", wrong.id)
    found = searched(tool, retired=True)["results"]
    assert [(each["content"], each["retired"], each["replaced_by"]) for each in found] == [
        ("Mira lives in Bonn", "outdated", updated["id"]),
        ("Mira's number is 555 0142", "wrong", right.id),
    ]
    assert tool.stats == {**NOTHING, "updated": 1, "deleted": 1, "retired": 2}


def test_another_reason_or_kind_of_search_is_refused(tool, ids):
    for call, error in {
        ("delete", "reason", "old"): "reason must be one of: same, outdated, wrong",
        ("delete", "by", "x"): "invalid memory id",
        ("search", "retired", "yes"): "retired must be true or false",
        ("search", "retired", False): "query is required for search",
    }.items():
        action, name, value = call
        id_ = {} if action == "search" else {"id": ids[0]}
        assert error in refused(tool, action=action, **id_, **{name: value})


# -- the end ---------------------------------------------------------------------------------------


def test_complete_ends_the_session_with_measured_figures(tool, ids):
    words = "x" * 2_000
    error = refused(tool, action="complete", summary=f"{words}x")
    assert error == "summary has 2,001 characters; at most 2,000 are allowed"
    tool.execute(action="delete", id=ids[0])

    result = tool.execute(action="complete", summary=f" {words} ")

    assert result == {
        "type": "refinement_complete",
        "summary": (f"Refinement session: 20 → 19 memories, 25 tokens saved (1 deleted). {words}"),
        "stats": {**NOTHING, "deleted": 1},
        "operations_left": 0,
        "tokens_left": 0,
    }
    assert sql.value("SELECT status FROM refinement_sessions") == "completed"


def delete_up_to_the_limit(tool, ids):
    results = [tool.execute(action="delete", id=id_) for id_ in ids[:5]]
    assert [result["type"] for result in results] == ["deleted"] * 5


@pytest.mark.parametrize("action", ["delete", "update", "consolidate", "complete"])
def test_the_call_that_goes_too_far_says_that_everything_was_undone(tool, ids, action):
    delete_up_to_the_limit(tool, ids)
    if action == "complete":
        sql.run("UPDATE session_entries SET counting_tokens = 0")
    call = {**calls_of(ids[5:7], "x"), "complete": {"action": "complete", "summary": "Done."}}

    result = tool.execute(**call[action])

    assert result["type"] == "refinement_rolled_back"
    assert result["reason"].startswith("All changes of this session were undone: ")
    assert tool.stats == result["stats"]
    assert not any(memory(id_).discarded for id_ in ids)
    if action == "delete":
        assert "remove 150 of 500 tokens (30%); the limit was 125" in result["reason"]
        assert result["stats"] == {**NOTHING, "deleted": 6}


@pytest.mark.parametrize("end", ["completed", "rolled_back", "given up", "another worker"])
def test_after_the_end_every_call_is_terminated(tool, ids, end, subtests):
    if end == "completed":
        tool.execute(action="complete", summary="Done.")
    elif end == "rolled_back":
        delete_up_to_the_limit(tool, ids)
        tool.execute(action="delete", id=ids[5])
    elif end == "given up":
        db.session.scalar(select(RefinementSession)).give_up("lost")
        db.session.commit()
    else:
        sql.run("UPDATE refinement_sessions SET lease_token = gen_random_uuid()")

    for call in [
        *calls_of([1, 2]).values(),
        SEARCH,
        {"action": "complete", "summary": "x"},
        {"action": "nonsense"},
        {},
    ]:
        with subtests.test(call=call):
            assert refused(tool, **call).startswith("Session terminated")


def test_a_session_takes_no_calls_under_a_lease_that_it_had_before(agent, ids):
    session = factories.session(agent)
    own = session.lease_token
    session.lease_token = uuid.uuid4()
    db.session.commit()

    assert refused(RefinementTool(session, own), action="delete", id=ids[0]).startswith("Session")
    assert RefinementTool(session).execute(action="delete", id=ids[0])["type"] == "deleted"


# -- one call, one transaction ---------------------------------------------------------------------


def test_nothing_is_committed_when_the_record_cannot_be_written(tool, ids, broken_audit, subtests):
    broken_audit("memory_refinement_")
    calls = {**calls_of(ids[:2], text_of(30)), "": {"action": "complete", "summary": "Done."}}
    db.session.commit()
    before = sql.snapshot()

    for call in calls.values():
        with subtests.test(call=call["action"]):
            with pytest.raises(DBAPIError, match="the disk is full"):
                tool.execute(**call)
            db.session.commit()
            assert sql.snapshot() == before
            assert tool.stats == NOTHING


def test_the_call_that_trips_is_not_committed_when_the_rollback_fails(tool, ids, broken_audit):
    broken_audit("memory_refinement_rollback")
    delete_up_to_the_limit(tool, ids)
    before = sql.snapshot()

    with pytest.raises(DBAPIError, match="the disk is full"):
        tool.execute(action="delete", id=ids[5])
    db.session.commit()

    assert sql.snapshot() == before


@pytest.mark.parametrize(
    ("action", "change"),
    [
        ("delete", "refinement_sessions SET removable_tokens = 500"),
        ("delete", "refinement_sessions SET threshold = 0.1"),
        ("complete", "session_entries SET counting_tokens = ceiling_tokens"),
    ],
)
def test_a_live_session_altered_in_the_database_cannot_continue(agent, ids, change, action):
    session = factories.session(agent)
    id_, tool = session.id, RefinementTool(session)
    assert tool.execute(action="delete", id=ids[0])["type"] == "deleted"
    sql.run(f"UPDATE {change}")
    call = {"id": ids[1]} if action == "delete" else {"summary": "Done."}

    with pytest.raises(RowAltered, match=f"RefinementSession {id_} was changed in the database"):
        tool.execute(action=action, **call)

    assert not memory(ids[1]).discarded_at


@pytest.mark.parametrize("action", ["delete", "search"])
def test_nothing_is_shown_or_deleted_by_entries_that_were_changed_in_the_database(
    agent, ids, action
):
    session = factories.session(agent)
    id_, tool = session.id, RefinementTool(session)
    if action == "delete":  # its tokens are counted as another memory's
        moved = f"CASE memory_id WHEN {ids[0]} THEN 1 WHEN {ids[1]} THEN 49 ELSE 25 END"
        sql.run(
            f"UPDATE session_entries SET counting_tokens = {moved}, "
            f"ceiling_tokens = greatest(ceiling_tokens, {moved})"
        )
    else:
        sql.run(f"DELETE FROM session_entries WHERE memory_id = {ids[0]}")

    with pytest.raises(RowAltered, match=f"RefinementSession {id_} was changed in the database"):
        tool.execute(**{"delete": calls_of(ids)["delete"], "search": SEARCH}[action])

    assert not memory(ids[0]).discarded_at


@pytest.mark.parametrize(
    "change", ["DELETE FROM chain_heads", "UPDATE chain_heads SET sequence = sequence - 1"]
)
def test_nothing_is_edited_where_the_audit_chain_was_changed(agent, ids, change) -> None:
    tool = RefinementTool(factories.session(agent))
    id_ = agent.id
    sql.tamper(f"{change} WHERE agent_id = {id_}")

    with pytest.raises(
        RowAltered, match=f"the audit chain of agent {id_} was changed in the database"
    ):
        tool.execute(action="delete", id=ids[0])

    assert not memory(ids[0]).discarded_at
