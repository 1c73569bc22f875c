"""A session whose worker is asked to stop is continued by another one, as if nothing had happened;
every guarantee of a session holds across both.
"""

import json
import threading
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from itertools import pairwise
from typing import Any

import pytest

from refine import clock
from refine.errors import Refused, SealingError
from refine.extensions import db
from refine.models import RefinementSession, SessionEntry, erasing
from refine.models.agent import configuring
from refine.models.runs.run import WORKER_STOPPED
from refine.models.runs.session.session import TAKEN_UP_WITHIN
from tests import factories, sql
from tests.chains import problems
from tests.refinement.conftest import World

YES = "YES, gladly."
STOPPED = "its process was asked to stop"


def shift(world: World, session: RefinementSession, calls: int = 0) -> RefinementSession:
    """The time of one worker, which is asked to stop after so many tool calls; 0: never."""
    seen: list[str] = []
    return world.refine(
        session,
        observe=lambda event: seen.append(event.kind),
        is_stopping=lambda: 0 < calls <= seen.count("tool_call"),
    )


def deletions(ids: list[int]) -> list[dict[str, Any]]:
    return [{"action": "delete", "id": id_} for id_ in ids]


def handed_back(world: World, *, deleted: int = 1) -> RefinementSession:
    """A session whose first worker was asked to stop after some edits."""
    world.model.say(YES)
    for id_ in world.ids[:deleted]:
        world.model.call("delete", id=id_)
    session = shift(world, world.queue(), calls=deleted)
    assert (session.status, session.mutation_count) == ("queued", deleted)
    return session


def entries_of(session: RefinementSession) -> list[tuple[Any, ...]]:
    found = SessionEntry.of(session).values()
    return sorted((each.memory_id, each.ceiling_tokens, each.counting_tokens) for each in found)


# -- what goes on ----------------------------------------------------------------------------------


def test_the_next_worker_continues_where_the_first_was_asked_to_stop(world: World) -> None:
    session = handed_back(world)
    world.model.call("delete", id=world.ids[1]).call("complete", summary="Two less.")
    left = {name: getattr(session, name) for name in ("consented_at", "started_at", "threshold")}
    snapshot, entries = (session.mass_before, session.removable_tokens), entries_of(session)

    shift(world, session)

    assert (session.status, session.error_kind) == ("completed", None)
    assert (session.mutation_count, session.tool_calls, session.turns) == (2, 3, 3)
    assert session.llm_calls == len(world.model.requests) == 4
    assert {name: getattr(session, name) for name in left} == left
    assert (session.mass_before, session.removable_tokens) == snapshot
    assert [ids for ids, *_ in entries] == world.ids
    actions = [record.action for record in world.records(session)]
    assert actions.count("memory_refinement_handed_back") == 1
    assert actions.count("memory_refinement_complete") == 1
    assert problems() == []


def test_each_request_begins_with_the_one_before_word_for_word(world: World) -> None:
    session = handed_back(world)
    world.model.say("Let me think: “ü” \ud83d\ude00 \x00 and 1e400.")
    world.model.calls('{"action": "search", "query":   "a"}', "no JSON", {"action": "search"})
    world.model.call("complete", summary="Done.")
    for calls in (1, 0):
        shift(world, session, calls=calls)

    asked = [request["messages"] for request in world.model.requests]
    assert session.status == "completed"
    assert all(later[: len(earlier)] == earlier for earlier, later in pairwise(asked))
    tools = [request["tools"] for request in world.model.requests]
    assert all(each == tools[0] for each in tools)


def test_a_call_of_the_model_that_was_interrupted_is_made_again(world: World) -> None:
    asked, session = threading.Event(), world.queue()
    world.model.say(YES).call("delete", id=world.ids[0]).meanwhile(lambda: asked.wait(20))
    world.is_stopping = lambda: len(world.model.requests) == 2
    world.refine(session)
    asked.set()
    world.is_stopping = lambda: False
    first = session.status
    world.model.call("delete", id=world.ids[1]).call("complete", summary="One less.")
    world.refine(session)

    assert (first, session.status, session.mutation_count) == ("queued", "completed", 1)
    assert world.asked(1) == world.asked(2)
    assert world.ids[0] in world.kept()


def test_the_calls_of_a_reply_that_are_left_are_carried_out_once(world: World) -> None:
    world.model.say(YES).calls(*deletions(world.ids[:3])).call("complete", summary="Three less.")
    session = shift(world, world.queue(), calls=1)

    shift(world, session)

    assert (session.status, session.mutation_count) == ("completed", 3)
    assert (session.tool_calls, len(world.model.requests)) == (4, 3)
    assert [json.loads(each)["type"] for each in world.results()] == ["deleted"] * 3
    assert world.kept() == world.ids[3:]


def test_a_call_that_was_counted_before_its_second_reading_counts_once(world: World) -> None:
    """The second edit is possible, and so is read, only after the first."""
    world.variables["REFINE_SECOND_READING"] = "on"
    one, other = world.memories[:2]
    stop, over, session = threading.Event(), threading.Event(), world.queue()
    world.model.say(YES).calls(
        {"action": "update", "id": one.id, "content": factories.text_of(25)},
        {"action": "update", "id": other.id, "content": one.content},
    )
    world.model.reads().reads().meanwhile(lambda: (stop.set(), over.wait(20)))
    world.refine(session, is_stopping=stop.is_set)
    over.set()
    before = (session.status, session.mutation_count, session.tool_calls)
    world.model.reads().call("complete", summary="Done.")

    shift(world, session)

    assert before == ("queued", 1, 2)
    assert (session.status, session.mutation_count, session.tool_calls) == ("completed", 2, 3)


def test_before_the_consent_it_goes_back_to_the_queue_as_new(world: World) -> None:
    stop, session = threading.Event(), world.queue()
    factories.memory(world.agent, world.memories[0].content)
    db.session.commit()
    world.model.say("").meanwhile(stop.set)
    world.refine(session, is_stopping=stop.is_set)
    back = (session.status, session.memories_before, session.sealed_conversation)
    found = entries_of(session)
    factories.memory(world.agent, "saved meanwhile")
    db.session.commit()
    world.model.say(YES).call("complete", summary="All is well.")

    shift(world, session)

    assert back == ("queued", None, None)
    assert found == []
    assert (session.status, session.memories_before) == ("completed", len(world.ids) + 1)
    assert (session.handed_back, session.duplicates_removed) == (0, 1)
    assert problems() == []


# -- the guarantees across it ----------------------------------------------------------------------


def test_the_breaker_undoes_what_both_workers_did(world: World) -> None:
    session = handed_back(world, deleted=3)
    world.model.calls(*deletions(world.ids[3:6]))

    shift(world, session)

    assert (session.status, session.removed_tokens) == ("rolled_back", 0)
    assert sorted(world.kept()) == world.ids
    assert problems() == []


def test_both_workers_together_make_ten_mutations(world: World) -> None:
    def update(number: int) -> dict[str, Any]:
        return {"action": "update", "id": world.ids[number], "content": factories.text_of(25)}

    world.model.say(YES).calls(*map(update, range(6))).calls(*map(update, range(6, 12)))
    world.model.call("complete", summary="Done.")
    session = shift(world, world.queue(), calls=6)

    shift(world, session)

    assert (session.status, session.mutation_count) == ("completed", 10)
    is_over = ["Hard cap reached" in each for each in world.results()]
    assert is_over == [False] * 10 + [True] * 2


@pytest.mark.parametrize(
    ("variables", "calls", "reason"),
    [
        ({}, 40, "the limit of 60 tool calls was reached"),
        ({"REFINE_MAX_TURNS": "2"}, 1, "the limit of 2 turns was reached"),
    ],
)
def test_the_limits_count_what_both_workers_did(
    world: World, variables: dict[str, str], calls: int, reason: str
) -> None:
    world.variables |= variables
    search = {"action": "search", "query": "a"}
    world.model.say(YES).calls(*[search] * calls).calls(*[search] * calls).calls(search)
    session = shift(world, world.queue(), calls=calls)

    shift(world, session)

    assert (session.status, session.end_reason) == ("incomplete", reason)


def test_the_time_that_a_session_waits_for_a_worker_does_not_count(world: World) -> None:
    session = handed_back(world)
    world.model.call("complete", summary="Done.")
    worked = (session.said or {})["seconds"]

    with clock.ahead(TAKEN_UP_WITHIN - timedelta(minutes=1)):
        shift(world, session)

    assert 0 < worked < 60
    assert session.status == "completed"


def test_the_time_that_the_first_worker_took_counts(world: World) -> None:
    session = handed_back(world)
    session.conversation = json.dumps({**(session.said or {}), "seconds": 900.0})
    db.session.commit()

    world.refine(session)

    limit = world.settings().max_seconds
    assert session.end_reason == f"the limit of {limit} seconds was reached"
    assert session.status == "incomplete"


def test_refusals_and_reminders_count_across_workers(world: World) -> None:
    unknown = {"action": "invented"}
    world.model.say(YES).calls(unknown).calls(unknown).calls(unknown)
    session = shift(world, world.queue(), calls=2)

    shift(world, session)

    assert (session.status, session.error_kind) == ("failed", "refused_calls")


def test_edits_that_were_refused_count_across_workers(world: World) -> None:
    grown = {"action": "update", "id": world.ids[0], "content": "nothing of it"}
    world.model.say(YES).calls(grown, grown).calls(grown).call("complete", summary="Done.")
    session = shift(world, world.queue(), calls=2)

    shift(world, session)

    assert "leave it as it is" in world.results()[-1]


def test_what_was_saved_meanwhile_cannot_be_changed(world: World) -> None:
    session = handed_back(world)
    later = factories.memory(world.agent, "saved meanwhile")
    changed = world.memories[2]
    changed.set_constitutional(True)
    db.session.commit()
    world.model.calls(*deletions([later.id, changed.id])).call("complete", summary="Done.")

    shift(world, session)

    assert "was not there when this session began" in world.results()[1]
    assert "Cannot delete constitutional" in world.results()[2]


def test_another_threshold_changes_nothing_of_a_session_that_has_begun(world: World) -> None:
    session = handed_back(world)
    world.agent.refinement_threshold = Decimal("0.1")
    db.session.commit()
    world.model.calls(*deletions(world.ids[1:6]))

    shift(world, session)

    assert (session.status, session.removable_tokens) == ("rolled_back", 125)


# -- when it is not continued ----------------------------------------------------------------------


def test_it_ends_when_a_third_worker_is_asked_to_stop(world: World) -> None:
    session = handed_back(world)
    world.model.call("protect", id=world.ids[1]).call("protect", id=world.ids[2])
    shift(world, session, calls=1)
    between = session.status

    shift(world, session, calls=1)

    assert between == "queued"
    assert (session.status, session.error_kind) == ("incomplete", WORKER_STOPPED)
    assert session.end_reason == f"{STOPPED} after 2 workers before"
    assert session.sealed_conversation is None


def test_it_ends_when_no_worker_continues_it_within_an_hour(world: World) -> None:
    session = handed_back(world)

    with clock.ahead(TAKEN_UP_WITHIN + timedelta(minutes=1)):
        shift(world, session)

    assert (session.status, session.mutation_count) == ("incomplete", 1)
    assert session.end_reason == "no worker continued it within 1 hour"


def deactivate(world: World) -> None:
    configuring.configure(world.agent, active=False)


def change_the_model(world: World) -> None:
    configuring.configure(world.agent, model_id="another/model")


def pause(world: World) -> None:
    configuring.configure(world.agent, paused=True)


def replace_what_was_said(world: World) -> None:
    session = RefinementSession.live_of(world.agent)
    assert session is not None
    session.conversation = json.dumps({**(session.said or {}), "number": 2})


def alter_what_was_said(world: World) -> None:
    sql.run("UPDATE refinement_sessions SET conversation = 'x'::bytea")


def lose_what_was_said(world: World) -> None:
    sql.run("UPDATE refinement_sessions SET conversation = NULL")


def erase(world: World) -> None:
    world.agent.erase()


@pytest.mark.parametrize(
    ("happens", "reason"),
    [
        (deactivate, "the agent is not active"),
        (change_the_model, "the agent's model was changed while it waited for a worker"),
        (pause, "the agent is paused"),
        (replace_what_was_said, "what was said in it cannot be opened"),
        (alter_what_was_said, "what was said in it cannot be opened"),
        (lose_what_was_said, "what was said in it cannot be opened"),
        (erase, "the agent was erased"),
    ],
)
def test_what_happens_meanwhile_ends_it(
    world: World, happens: Callable[[World], None], reason: str
) -> None:
    session = handed_back(world)
    session.trigger = "weekly"
    db.session.commit()
    requests = len(world.model.requests)
    happens(world)
    db.session.commit()

    shift(world, session)

    assert (session.status, session.end_reason) == ("incomplete", reason)
    assert session.mutation_count == 1
    assert len(world.model.requests) == requests
    assert problems() == []


def test_a_stop_that_was_requested_meanwhile_ends_it_at_once(world: World) -> None:
    session = handed_back(world)
    user = factories.user(account=world.agent.account)

    session.request_stop(user)
    db.session.commit()

    assert (session.status, session.stop_requested_by_id) == ("incomplete", user.id)
    assert session.end_reason == "stopped on request while it was queued"


def test_a_stop_that_was_requested_is_no_reason_to_hand_it_back(world: World) -> None:
    session = RefinementSession.start(world.agent)
    session.consented_at = clock.now()
    session.request_stop()

    session.hand_back(STOPPED, {})

    assert session.status == "incomplete"


def test_a_worker_that_stops_gives_up_a_session_whose_agent_was_erased(world: World) -> None:
    session = RefinementSession.start(world.agent)
    session.consented_at = clock.now()
    world.agent.erase()

    session.hand_back(STOPPED, {})

    assert session.status == "failed"


# -- what is stored --------------------------------------------------------------------------------


def test_what_was_said_is_sealed_and_gone_once_it_is_continued(world: World) -> None:
    session, found = handed_back(world), list[object]()
    world.model.call("complete", summary="Done.").meanwhile(
        world.elsewhere(lambda session: found.append(session.sealed_conversation))
    )
    content = world.memories[3].content
    stored, said = session.sealed_conversation or b"", session.conversation or ""

    shift(world, session)

    assert content in said
    assert content.encode() not in stored
    assert (session.status, found) == ("completed", [None])


def test_it_is_erased_with_the_agents_key(world: World) -> None:
    session = handed_back(world)
    world.agent.erase()

    with pytest.raises(SealingError):
        assert session.conversation


def test_no_memory_is_erased_while_it_waits(world: World) -> None:
    handed_back(world)

    with pytest.raises(Refused, match="is queued; wait until it has ended"):
        erasing.erase(world.agent, world.ids[3], "agent")
