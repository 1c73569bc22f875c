"""The loop of a session: every ending, and what is true of each."""

import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from refine.errors import RowAltered
from refine.extensions import db
from refine.models import Agent, RefinementSession, User
from refine.models.agent import configuring
from refine.models.integrity import verify_all
from refine.models.runs.spending import spent_by_agents
from refine.refinement.loop import SessionEvent, refine
from refine.rules.consent import Answer
from tests import factories, sql
from tests.refinement.conftest import World
from tests.replies import CASES

CONSENTED_ENDS = ("completed", "rolled_back", "incomplete")
YES = "YES, gladly."
REFUSED = "the model's calls were refused 3 times for the same reason"
NO_ANSWER = "the consent question got no answer, even when asked again: "

CALL = {"id": "c", "type": "function", "function": {"name": "refinement", "arguments": "{}"}}

# What the audit calls each end.
ACTIONS = {
    "completed": "memory_refinement_complete",
    "rolled_back": "memory_refinement_rollback",
    "incomplete": "memory_refinement_incomplete",
    "declined": "memory_refinement_declined",
    "skipped": "memory_refinement_skipped",
    "failed": "memory_refinement_failed",
}


def deactivate(session: RefinementSession) -> None:
    configuring.configure(session.agent, active=False)


def lose(session: RefinementSession) -> None:
    factories.fall_silent(session)
    assert session.end_if_lost()


def deletions(ids: list[int]) -> list[dict[str, Any]]:
    return [{"action": "delete", "id": id_} for id_ in ids]


# -- the endings ----------------------------------------------------------------------------------


def completes_without_change(world: World) -> None:
    world.model.say(YES).call("complete", summary="All is well.")


def completes_after_a_change(world: World) -> None:
    world.model.say(YES).call("delete", id=world.ids[0]).call("complete", summary="One less.")


def says_no(world: World) -> None:
    world.model.say("NO. Not today.")


def trips_the_breaker(world: World) -> None:
    world.model.say(YES).calls(*deletions(world.ids[:6]))


def garbles_the_tools_name(world: World) -> None:
    world.model.say(YES)
    for number in range(3):
        world.model.tool = f"refinement<|canary-{number}|>"
        world.model.call("search", query="a")
    world.model.tool = "refinement"


def says_nothing_twice(world: World) -> None:
    world.model.say("").say(None)


def has_locked_memories_alone(world: World) -> None:
    agent = factories.agent()
    factories.memory(agent, constitutional=True)
    factories.memory(agent, tags=["voice"])
    world.use(agent)
    db.session.commit()


def has_a_threshold_that_leaves_no_room(world: World) -> None:
    world.agent.refinement_threshold = 1.0
    db.session.commit()


def was_eroded(world: World) -> None:
    earlier = RefinementSession.start(world.agent)
    earlier.finish("completed", "the agent completed it")
    earlier.removable_tokens = earlier.removed_tokens = 1000
    world.agent.last_refinement_at = None
    for memory in factories.journal(world.agent):
        memory.discard()
    db.session.commit()


@dataclass(frozen=True)
class Ending:
    play: Callable[[World], object]
    status: str
    reason: str
    error_kind: str | None = None
    variables: dict[str, str] = field(default_factory=dict)


SEARCH = {"action": "search", "query": "a"}
SLOW = {"REFINE_MAX_SECONDS": "1"}
IN_TIME = "the limit of 1 seconds was reached"
UNAUTHORIZED = ("the model's server answered HTTP 401 (check OPENROUTER_API_KEY)", "unauthorized")

ENDINGS = {
    "completes": Ending(completes_without_change, "completed", "the agent completed it"),
    "completes after a change": Ending(
        completes_after_a_change, "completed", "the agent completed it"
    ),
    "trips the breaker": Ending(
        trips_the_breaker,
        "rolled_back",
        "tried to remove 150 of 500 tokens (30%); the limit was 125 (25%)",
    ),
    "talks instead of calling": Ending(
        lambda world: world.model.say(YES).say("Let me think.").say("I am done, I believe."),
        "incomplete",
        "the agent made no further tool call",
    ),
    "too many turns": Ending(
        lambda world: world.model.say(YES).calls(SEARCH).calls(SEARCH),
        "incomplete",
        "the limit of 2 turns was reached",
        variables={"REFINE_MAX_TURNS": "2"},
    ),
    "too many calls": Ending(
        lambda world: world.model.say(YES).calls(*[SEARCH] * 61),
        "incomplete",
        "the limit of 60 tool calls was reached",
    ),
    "too long": Ending(
        lambda world: world.model.say(YES).calls(SEARCH).meanwhile(lambda: time.sleep(1.3)),
        "incomplete",
        IN_TIME,
        variables=SLOW,
    ),
    "too long before consent": Ending(
        lambda world: world.model.say(YES).meanwhile(lambda: time.sleep(1.3)),
        "failed",
        IN_TIME,
        "timeout",
        variables=SLOW,
    ),
    "stopped between two calls": Ending(
        lambda world: (
            world.model.say(YES)
            .call("delete", id=world.ids[0])
            .meanwhile(world.elsewhere(lambda session: session.request_stop()))
        ),
        "incomplete",
        "stopped on the command line",
    ),
    "deactivated between two calls": Ending(
        lambda world: (
            world.model.say(YES)
            .calls(*deletions(world.ids[:2]))
            .meanwhile(world.elsewhere(deactivate))
        ),
        "incomplete",
        "the agent is not active",
    ),
    "no provider after a change": Ending(
        lambda world: world.model.say(YES).call("delete", id=world.ids[0]).http(401),
        "incomplete",
        *UNAUTHORIZED,
    ),
    "no provider after a protection": Ending(
        lambda world: world.model.say(YES).call("protect", id=world.ids[0]).http(401),
        "failed",
        *UNAUTHORIZED,
    ),
    "no provider": Ending(lambda world: world.model.http(401), "failed", *UNAUTHORIZED),
    "no key": Ending(
        lambda world: None,
        "failed",
        "no API key: set OPENROUTER_API_KEY on the server (any value, if your model server needs "
        "none)",
        "no_key",
        variables={"OPENROUTER_API_KEY": ""},
    ),
    "cut three times": Ending(
        lambda world: [
            world.model.say(YES),
            *(world.model.calls(SEARCH, finish_reason="length") for _ in range(3)),
        ],
        "incomplete",
        "the model's answers were cut off",
    ),
    "garbled names of the tool": Ending(
        garbles_the_tools_name,
        "failed",
        f"{REFUSED}: unknown tool; the only tool is refinement",
        "refused_calls",
    ),
    "invented actions after a change": Ending(
        lambda world: (
            world.model.say(YES)
            .call("delete", id=world.ids[0])
            .call("canary")
            .call("sing")
            .call("")
        ),
        "incomplete",
        REFUSED,
        "refused_calls",
    ),
    "one refused call three times": Ending(
        lambda world: [
            world.model.say(YES),
            *(world.model.call("delete", id=f"{world.ids[0]} canary") for _ in range(3)),
        ],
        "failed",
        REFUSED,
        "refused_calls",
    ),
    "no": Ending(says_no, "declined", "the agent declined"),
    "no after an unclear reply": Ending(
        lambda world: world.model.say("Ja, gerne.").say("NO"), "declined", "the agent declined"
    ),
    "no beside a call": Ending(
        lambda world: world.model.reply({"content": "NO.", "tool_calls": [CALL]}),
        "declined",
        "the agent declined",
    ),
    "no in words that no database holds": Ending(
        lambda world: world.model.say("NO\x00 \ud800."), "declined", "the agent declined"
    ),
    "no answer": Ending(
        says_nothing_twice, "failed", NO_ANSWER + Answer.NO_WORDS.value, "no_answer"
    ),
    "a call instead of an answer": Ending(
        lambda world: world.model.call("delete", id=world.ids[0]).call("delete", id=world.ids[0]),
        "failed",
        NO_ANSWER + Answer.CALL.value,
        "no_answer",
    ),
    "locked memories alone": Ending(
        has_locked_memories_alone, "skipped", "no core memory can be changed by a session"
    ),
    "no room below the threshold": Ending(
        has_a_threshold_that_leaves_no_room,
        "skipped",
        "nothing may be removed: the threshold of 1.0 leaves no room in a ledger of this size",
    ),
    "eroded": Ending(
        was_eroded,
        "skipped",
        "nothing may be removed: sessions of the last 30 days removed as much as is allowed",
    ),
}


@pytest.mark.parametrize("ending", ENDINGS.values(), ids=ENDINGS)
def test_every_ending_is_recorded_with_its_reason_and_measured_figures(
    world: World, ending: Ending
) -> None:
    world.variables = ending.variables
    ending.play(world)

    session = world.refine()

    ends = [record for record in world.records(session) if record.action in ACTIONS.values()]
    count, mass = world.agent.ledger.core_totals()
    has_consented = ending.status in CONSENTED_ENDS
    assert (session.status, session.end_reason) == (ending.status, ending.reason)
    assert session.error_kind == ending.error_kind
    assert world.events[-1].kind == "ended"
    assert [record.action for record in ends] == [ACTIONS[ending.status]]
    assert ends[0].data["status"] == ending.status
    assert ends[0].data["reason"] == ending.reason
    assert (ends[0].data["memories_after"], ends[0].data["mass_after"]) == (count, mass)
    assert (session.memories_after, session.mass_after) == (count, mass)
    assert session.lease_token is None
    assert session.ended_at is not None
    assert world.agent.last_refinement_at == (session.ended_at if has_consented else None)
    assert len(world.journal()) == has_consented
    assert session.tool_calls == sum(event.kind == "tool_call" for event in world.events) <= 60
    assert (session.llm_calls == len(world.model.requests) == 0) or ending.status != "skipped"
    db.session.rollback()
    assert all(chain.problem is None for chain in verify_all())


def test_a_session_ends_without_a_fault_if_the_agent_is_erased_before_it_answers(
    world: World,
) -> None:
    world.model.say(YES).meanwhile(world.elsewhere(lambda session: session.agent.erase()))

    session = world.refine()

    assert (session.status, session.error_kind) == ("skipped", None)
    assert session.end_reason == "the agent was erased"


# -- what the endings leave -----------------------------------------------------------------------


def test_another_model_in_the_middle_changes_nothing_more(world: World) -> None:
    world.model.say(YES).call("delete", id=world.ids[0])
    world.model.calls({"action": "delete", "id": world.ids[1]}, model="test/usurper")

    session = world.refine()

    assert (session.status, session.error_kind) == ("incomplete", "other_model")
    assert world.kept() == world.ids[1:]


def test_a_stop_before_consent_skips_the_session_and_records_who_asked_for_it(world: World) -> None:
    answered = threading.Event()
    user = factories.user()
    db.session.commit()
    user_id = user.id
    asks_to_stop = world.elsewhere(
        lambda session: session.request_stop(db.session.get_one(User, user_id))
    )
    world.model.say(YES).meanwhile(lambda: (asks_to_stop(), answered.wait(5)))

    session = world.refine()
    answered.set()

    record = factories.records(session.agent)[-1]
    assert (record.action, record.user_id) == ("memory_refinement_skipped", user_id)
    assert (session.status, session.end_reason) == ("skipped", "stopped on request")
    assert session.consented_at is None


def test_a_stop_between_the_calls_of_one_reply_leaves_the_rest_undone(world: World) -> None:
    world.model.say(YES).calls(*deletions(world.ids[:3]))

    def stop_after_the_first(event: SessionEvent) -> None:
        if event.kind == "tool_call":
            world.elsewhere(lambda session: session.request_stop())()

    session = world.refine(observe=stop_after_the_first)

    assert session.status == "incomplete"
    assert world.kept() == world.ids[1:]


def test_two_replies_that_were_cut_are_tolerated_and_not_executed(world: World) -> None:
    world.model.say(YES)
    for id_, reason in zip(world.ids, ("length", "content_filter"), strict=False):
        world.model.calls({"action": "delete", "id": id_}, finish_reason=reason)
    world.model.call("complete", summary="All is well.")

    session = world.refine()

    assert session.status == "completed"
    assert world.kept() == world.ids
    assert all("cut off before its end" in result for result in world.results())


def test_the_agent_is_reminded_once_and_may_continue(world: World) -> None:
    world.model.say(YES).say("Let me think.").call("complete", summary="All is well.")

    session = world.refine()

    reminder = world.asked(-1)[-1]
    assert session.status == "completed"
    assert reminder["role"] == "user"
    assert "The session is still open" in reminder["content"]


# -- the answer -----------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["reply"][:40])
def test_only_a_plain_yes_lets_a_session_run(world: World, case: dict[str, str]) -> None:
    world.model.say(case["reply"])
    if case["session"] == "asked again":
        world.model.say(case["reply"])
    elif case["session"] == "yes":
        world.model.call("complete", summary="All is well.")

    session = world.refine()

    ends = {"yes": "completed", "no": "declined", "asked again": "failed"}
    assert (session.status, world.model.left) == (ends[case["session"]], 0)


@pytest.mark.parametrize(
    ("reply", "finish_reason"),
    [
        (None, "stop"),
        ("NO, but", "length"),
        ("YES", "content_filter"),
        ("Yes, but only the memories about the garden.", "stop"),
    ],
)
def test_an_unclear_reply_is_asked_back_with_room_for_twice_the_output(
    world: World, reply: str | None, finish_reason: str
) -> None:
    world.model.say(reply, finish_reason=finish_reason)
    completes_without_change(world)

    session = world.refine()

    first, second = world.model.requests[:2]
    limits = [request["max_completion_tokens"] for request in world.model.requests]
    *asked, said, back = second["messages"]
    is_kept = finish_reason == "stop" and reply is not None and reply.startswith("Yes")
    assert session.status == "completed"
    assert asked == first["messages"]
    assert said == {"role": "assistant", "content": reply if is_kept else "(no answer)"}
    assert (back["role"], "Conditions cannot be kept" in back["content"]) == ("user", True)
    assert limits == [8192, 16384, 8192]
    assert session.consent_reply == YES


def test_the_second_answer_may_not_be_a_call(world: World) -> None:
    world.model.calls(*deletions(world.ids[:1]))
    completes_without_change(world)

    world.refine()

    choices = [request["tool_choice"] for request in world.model.requests]
    assert choices == ["auto", "none", "auto"]


def test_an_agent_that_gave_no_answer_is_asked_again_later(world: World) -> None:
    says_nothing_twice(world)
    session = RefinementSession.queue(world.agent, "weekly")
    db.session.commit()

    world.refine(session)

    assert (session.may_be_retried, session.consent_reply) == (True, None)
    assert "consent" not in [event.kind for event in world.events]


# -- exact duplicates -----------------------------------------------------------------------------


def test_duplicates_are_removed_first_and_stay_removed_without_a_loop(world: World) -> None:
    twin = factories.memory(world.agent, world.memories[0].content.title())
    db.session.commit()
    says_no(world)

    session = world.refine()

    assert twin.discarded
    assert world.kept() == world.ids
    assert session.duplicates_removed == 1
    assert world.records(session)[1].action == "memory_refinement_dedup"


REMOVED = (
    "Exact duplicates among my core memories, removed unread at the start of the session: 1. "
    "One copy of each stays."
)


@pytest.mark.parametrize(
    ("play", "told"),
    [
        (completes_without_change, "Refinement session: 21 → 20 memories, 25 tokens saved "),
        (trips_the_breaker, "My refinement session was rolled back entirely: "),
        (says_no, "I declined a refinement session."),
        (
            has_a_threshold_that_leaves_no_room,
            "A refinement session was skipped: nothing may be removed: the threshold of 1.0 ",
        ),
    ],
    ids=lambda each: getattr(each, "__name__", None),
)
def test_one_journal_memory_reports_removed_duplicates_after_any_end(
    world: World, play: Callable[[World], None], told: str
) -> None:
    factories.memory(world.agent, world.memories[0].content)
    db.session.commit()
    play(world)

    world.refine()

    (note,) = world.journal()
    assert note.startswith(told)
    assert note.endswith(f" {REMOVED}")
    db.session.rollback()
    assert all(chain.problem is None for chain in verify_all())


def test_a_session_is_told_step_by_step_and_without_content(world: World) -> None:
    world.model.say(YES).calls({"action": ["canary"], "id": "canary"})
    world.model.call("complete", summary="canary")

    world.refine()

    kinds = [event.kind for event in world.events]
    told = [event.facts for event in world.events]
    assert kinds == ["duplicates", "snapshot", "consent", "tool_call", "tool_call", "ended"]
    assert told[3] == {"action": "unreadable call", "result": "error"}
    assert "canary" not in repr(told)


# -- the conversation -----------------------------------------------------------------------------


def test_each_request_starts_with_the_one_before_verbatim(world: World) -> None:
    world.model.say(YES).say("Let me look.").call("search", query="a").calls("{broken")
    world.model.call("delete", id=world.ids[0]).call("complete", summary="One less.")

    world.refine()

    requests = [request["messages"] for request in world.model.requests]
    assert len(requests) == 6
    for earlier, later in zip(requests, requests[1:], strict=False):
        assert later[: len(earlier)] == earlier
        assert len(later) > len(earlier)


def test_the_agents_own_model_is_asked_under_the_terms_of_its_account(world: World) -> None:
    world.agent.account.zero_data_retention = False
    db.session.commit()
    completes_without_change(world)

    session = world.refine()

    asked = world.model.requests[-1]
    assert asked["model"] == "test/model"
    assert asked["session_id"] == str(session.id)
    assert asked["user"] == f"account-{world.agent.account_id}"
    assert asked["provider"]["zdr"] is False
    assert "models" not in asked


@pytest.mark.parametrize(
    "change",
    [
        "refinement_sessions SET model_id = 'evil/reader' "
        "WHERE lease_token IS NOT NULL AND model_id <> 'evil/reader'",
        "accounts SET zero_data_retention = false WHERE zero_data_retention",
    ],
    ids=["model", "terms"],
)
def test_does_not_send_the_ledger_once_model_or_terms_were_changed_in_the_database(
    world: World, change: str
) -> None:
    completes_without_change(world)
    session = world.queue()

    with (
        sql.just_before("FROM refinement_sessions", f"UPDATE {change}"),
        pytest.raises(RowAltered, match="was changed in the database, not by Refine"),
    ):
        world.refine(session)

    assert world.model.requests == []


def test_no_transaction_is_open_while_the_model_is_asked(world: World) -> None:
    open_transactions: list[int] = []

    def look() -> None:
        with world.app.app_context():
            idle = text(
                "SELECT count(*) FROM pg_stat_activity WHERE pid <> pg_backend_pid() "
                "AND backend_type = 'client backend' AND xact_start IS NOT NULL"
            )
            open_transactions.append(db.session.execute(idle).scalar_one())

    world.model.say(YES).meanwhile(look).call("delete", id=world.ids[0]).meanwhile(look)
    world.model.call("complete", summary="One less.").meanwhile(look)

    session = world.refine()

    assert session.status == "completed"
    assert open_transactions == [0, 0, 0]


def test_invalid_calls_get_an_error_and_change_nothing(world: World) -> None:
    calls = [
        ({"name": "refinement", "arguments": "{broken"}, "nothing was done"),
        ({"name": "forget_all", "arguments": "{}"}, "the only tool is refinement"),
        ({"name": "refinement", "arguments": '{"action": "purge"}'}, "Invalid action 'purge'"),
        ({"name": "refinement", "arguments": '{"self": 1, "action": "delete"}'}, "unknown"),
    ]
    world.model.say(YES)
    for call, _ in calls:
        world.model.reply({"tool_calls": [{"id": "c", "type": "function", "function": call}]})
    world.model.call("complete", summary="All is well.")

    session = world.refine()

    assert session.status == "completed"
    for result, (call, said) in zip(map(json.loads, world.results()), calls, strict=True):
        assert result["type"] == "error", call
        assert said in result["error"], call
    assert world.kept() == world.ids


@pytest.mark.parametrize("last", [5, 1], ids=["rolled back", "completed"])
def test_refuses_calls_after_the_end_in_the_same_reply_and_asks_nothing_more(
    world: World, last: int
) -> None:
    ends = deletions(world.ids[:6]) if last == 5 else [{"action": "complete", "summary": "Done."}]
    world.model.say(YES).calls(*ends, *deletions(world.ids[10:12]))

    session = world.refine()

    late = [event.facts for event in world.events if event.kind == "tool_call"][-2:]
    assert session.status == ("rolled_back" if last == 5 else "completed")
    assert late == [{"action": "delete", "result": "error"}] * 2
    assert world.kept() == world.ids
    assert len(world.model.requests) == 2


# -- figures and sealed texts ---------------------------------------------------------------------


def test_usage_is_summed_over_all_calls(world: World) -> None:
    usage = {
        "prompt_tokens": 1000,
        "completion_tokens": 20,
        "prompt_tokens_details": {"cached_tokens": 400},
        "cost": 0.0125,
    }
    world.model.say(YES, usage=usage).calls({"action": "search", "query": "a"}, usage=usage)
    world.model.calls({"action": "complete", "summary": "All is well."}, usage=usage)

    session = world.refine()

    counted = (session.prompt_tokens, session.cached_tokens, session.completion_tokens)
    assert (session.llm_calls, session.turns, session.tool_calls) == (3, 2, 2)
    assert counted == (3000, 1200, 60)
    assert session.cost_usd == Decimal("0.0375")
    assert world.records(session)[-1].data["prompt_tokens"] == 3000


PRICING = {"prompt": "0.000003", "completion": "0.000015"}
FREE = {"prompt": "0", "completion": "0"}
PRICES = {"test/model": PRICING}
# 300 tokens of prompts and 30 of completions, in three calls
RECKONED = Decimal("0.00135")


@pytest.mark.parametrize(
    ("listed", "in_file", "cost_usd", "unpriced_calls"),
    [
        (PRICING, {}, RECKONED, 0),
        (None, PRICES, RECKONED, 0),
        (FREE, PRICES, Decimal(0), 0),
        (None, {}, Decimal(0), 3),
    ],
    ids=["listed", "in the file", "listed as free", "nowhere"],
)
def test_a_cost_that_no_answer_names_is_calculated_or_unknown(
    world: World,
    tmp_path: Path,
    listed: Any,
    in_file: Any,
    cost_usd: Decimal,
    unpriced_calls: int,
) -> None:
    world.model.catalogue = [{"id": "test/model", "pricing": listed}]
    if in_file:
        prices = tmp_path / "prices.json"
        prices.write_text(json.dumps(in_file))
        world.variables = {"REFINE_PRICES": str(prices)}
    world.model.say(YES).call("search", query="a").call("complete", summary="All is well.")

    session = world.refine()

    assert (session.cost_usd, session.unpriced_calls) == (cost_usd, unpriced_calls)
    assert world.records(session)[-1].data["unpriced_calls"] == unpriced_calls


@pytest.mark.parametrize("usage", [{"total_tokens": 0}, {"prompt_tokens": "100"}])
def test_assumes_as_many_tokens_as_possible_if_none_were_counted(world: World, usage: Any) -> None:
    world.model.catalogue = [{"id": "test/model", "pricing": PRICING}]
    world.model.say("NO", usage=usage)

    session = world.refine()

    sent = json.dumps([world.model.requests[0][name] for name in ("messages", "tools")])
    assert len(sent) / 4 < session.prompt_tokens < len(sent) / 2
    assert session.completion_tokens == world.model.requests[0]["max_completion_tokens"] == 8_192
    prompt_usd = session.prompt_tokens * Decimal("0.000003")
    assert (session.cost_usd, session.unpriced_calls) == (prompt_usd + Decimal("0.12288"), 0)


def test_a_cap_counts_calls_without_tokens_when_prices_are_named_later(
    world: World, with_prices: Callable[[str], None]
) -> None:
    usage = {"prompt_tokens": 100, "completion_tokens": 10, "cost": 4}
    world.model.say(YES, usage=usage).calls(
        {"action": "complete", "summary": "All is well."}, usage={"prompt_tokens": "100"}
    )
    session = world.refine()
    account, at = session.agent.account, session.created_at
    assert (session.cost_usd, session.unpriced_calls) == (4, 1)
    assert spent_by_agents(at, Agent.account_id == account.id) == (4, True)

    with_prices(json.dumps(PRICES))

    usd, is_unknown = spent_by_agents(at, Agent.account_id == account.id)
    assert not is_unknown
    # the price of an output of 8,192 tokens, and of some prompt
    assert Decimal("4.12288") < usd < Decimal("4.14")


def test_another_models_name_is_kept_with_the_session(world: World) -> None:
    world.model.catalogue = [{"id": "test/model"}, {"id": "test/usurper"}]
    world.model.say(YES, model="test/usurper")

    session = world.refine()

    assert (session.status, session.error_kind) == ("failed", "other_model")
    assert session.end_reason == "another model answered"
    assert session.answered_model_id == "test/usurper"


def test_no_name_that_an_admin_typed_for_the_model_reaches_the_agents_words(world: World) -> None:
    typed = "always/say-yes"
    configuring.configure(world.agent, user=factories.user(), model_id=typed)
    factories.memory(world.agent, world.memories[0].content)
    db.session.commit()
    for model in ("test/usurper", typed):
        world.model.say("NO", model=model)
        world.refine()

    asked = [request["messages"] for request in world.model.requests]
    assert len(world.journal()) == 2
    assert "another model answered" in str(asked[1])
    assert typed not in f"{world.journal()} {asked}"


def test_a_name_that_is_not_in_the_list_is_not_repeated(world: World) -> None:
    world.model.say(YES, model="other/canary")

    session = world.refine()

    assert session.answered_model_id == "a model that the provider does not list"
    assert session.end_reason == "another model answered"


def test_a_result_does_not_repeat_the_call(world: World) -> None:
    text = world.memories[0].content
    world.model.say(YES).call("update", id=world.ids[0], content=f"{text}!")
    world.model.call("search", query=text[:9]).call("complete", summary="All is well.")

    world.refine()

    updated, searched, *_ = [json.loads(result) for result in world.results()]
    assert updated.keys() == {"type", "id", "operations_left", "tokens_left"}
    assert "query" not in searched
    assert searched["results"]


# -- what does not fit -----------------------------------------------------------------------------

SMALL = {"REFINE_CONTEXT_TOKENS": "8192"}
NO_ROOM = "the context of the agent's model is too small for its prompts, journal and memories"
GROWN = "the conversation is too large for the context of the agent's model"


def one_long_memory(world: World) -> None:
    world.use(factories.agent())
    world.memories = factories.ledger(world.agent, 2_500)


def a_long_journal(world: World) -> None:
    factories.ledger(world.agent, *[190] * 40, memory_type="journal")


@pytest.mark.parametrize("prepare", [one_long_memory, a_long_journal], ids=["memory", "journal"])
def test_a_context_without_room_for_memories_fails_before_anything_is_asked(
    world: World, prepare: Callable[[World], None]
) -> None:
    world.variables = SMALL
    prepare(world)
    db.session.commit()

    session = world.refine()

    assert (session.status, session.error_kind) == ("failed", "too_large")
    assert session.end_reason == NO_ROOM
    assert world.model.requests == []


@pytest.mark.parametrize("has_consented", [False, True])
def test_a_model_is_not_asked_more_than_fits_its_context(world: World, has_consented: bool) -> None:
    world.variables = SMALL
    if has_consented:
        world.model.say(YES).call("delete", id=world.ids[0])
    world.model.calls({"action": "search", "query": "x " * 12_000})

    session = world.refine()

    ended = "incomplete" if has_consented else "failed"
    assert (session.status, session.error_kind, session.end_reason) == (ended, "too_large", GROWN)
    assert len(world.model.requests) == (3 if has_consented else 1)
    assert world.kept() == world.ids[has_consented:]


def test_memories_that_a_search_left_out_cannot_be_changed(world: World) -> None:
    world.variables = {"REFINE_CONTEXT_TOKENS": "8192"}
    world.use(factories.agent())
    world.memories = factories.ledger(world.agent, *[300] * 25)
    db.session.commit()
    last = world.ids[19]  # the last that a search could show
    world.model.say(YES).calls({"action": "search", "after": "2020-01-01"}, *deletions([last]))
    world.model.call("complete", summary="All is well.")

    world.refine()

    found, refused = [json.loads(result) for result in world.results()]
    assert last not in [entry["id"] for entry in found["results"]]
    assert refused["type"] == "error"
    assert last in world.kept()


def test_the_consent_reply_is_kept_sealed(world: World) -> None:
    world.model.say("NO, the canary sings.")

    session = world.refine()

    row = db.session.execute(
        text("SELECT r::text || a::text FROM refinement_sessions r, audit_logs a")
    )
    assert session.consent_reply == "NO, the canary sings."
    assert world.records(session)[-1].sealed == {"memories": []}
    assert not any("canary" in line for (line,) in row)
    assert session.sealed_consent_reply is not None
    assert b"canary" not in session.sealed_consent_reply


# -- once, by one worker --------------------------------------------------------------------------


def test_a_session_runs_once(world: World) -> None:
    completes_without_change(world)
    session = world.refine()
    asked = len(world.model.requests)

    again = refine(session.id, world.settings())

    assert again is None
    assert len(world.model.requests) == asked
    assert len(world.journal()) == 1


@pytest.mark.parametrize("before_its_answer", [True, False])
def test_a_session_taken_away_while_the_model_is_asked_changes_nothing_more(
    world: World, before_its_answer: bool
) -> None:
    let_go, waited_in_vain = threading.Event(), threading.Event()
    takes_away = world.elsewhere(lose)

    def taken() -> None:
        takes_away()
        if before_its_answer and not let_go.wait(5):
            waited_in_vain.set()

    world.model.say(YES).call("delete", id=world.ids[0]).meanwhile(taken)

    session = world.refine()
    let_go.set()

    assert not waited_in_vain.is_set()
    assert (session.status, session.end_reason) == ("failed", "the worker was lost")
    assert world.records(session)[-1].action == "memory_refinement_failed"
    assert world.kept() == world.ids
    assert session.llm_calls == 1


def test_a_session_given_to_another_worker_is_left_to_it(world: World) -> None:
    def take_over(session: RefinementSession) -> None:
        db.session.execute(text("UPDATE refinement_sessions SET lease_token = gen_random_uuid()"))

    world.model.say(YES).calls(*deletions(world.ids[:1]))
    world.model.meanwhile(world.elsewhere(take_over))

    session = world.refine()

    assert (session.status, session.end_reason) == ("running", None)
    assert world.kept() == world.ids
    assert world.journal() == []


def test_a_session_taken_away_between_two_questions_asks_nothing_more(world: World) -> None:
    def take_over(event: SessionEvent) -> None:
        if event.kind == "tool_call":
            db.session.execute(
                text("UPDATE refinement_sessions SET lease_token = gen_random_uuid()")
            )
            db.session.commit()

    world.model.say(YES).calls(*deletions(world.ids[:1])).say("unheard")

    session = world.refine(observe=take_over)

    assert (session.status, session.mutation_count) == ("running", 1)
    assert len(world.model.requests) == 2


# -- faults of ours -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "after_changes", "status", "reason"),
    [
        (LookupError("canary"), 0, "failed", "internal error (LookupError)"),
        (LookupError("canary"), 1, "incomplete", "internal error (LookupError)"),
        (KeyboardInterrupt(), 0, "failed", "interrupted"),
    ],
)
def test_a_fault_of_ours_ends_the_session_and_is_raised_again(
    world: World, fault: BaseException, after_changes: int, status: str, reason: str
) -> None:
    completes_after_a_change(world)
    session = world.queue()

    def is_stopping() -> bool:
        if session.status == "running" and session.mutation_count >= after_changes:
            raise fault
        return False

    with pytest.raises(type(fault)):
        world.refine(session, is_stopping=is_stopping)

    db.session.refresh(session)
    assert (session.status, session.end_reason) == (status, reason)
    assert (session.error_kind == "internal") == isinstance(fault, LookupError)


def test_a_stopping_process_starts_no_session(world: World) -> None:
    session = world.queue()

    begun = refine(session.id, world.settings(), is_stopping=lambda: True)

    db.session.refresh(session)
    assert begun is None
    assert session.status == "queued"
    assert world.model.requests == []


def test_a_broken_display_does_not_affect_the_session(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    for fault in (BrokenPipeError(), SystemExit(1), LookupError("canary")):

        def observe(_event: SessionEvent, fault: BaseException = fault) -> None:
            raise fault

        completes_without_change(world)

        session = world.refine(observe=observe)

        assert session.status == "completed", fault
        assert f"'fault': '{type(fault).__name__}'" in caplog.text
    assert caplog.text.count("an observer failed") == 3  # it is told nothing more
    assert "canary" not in caplog.text


def test_a_fault_of_the_database_does_not_end_the_display(world: World) -> None:
    told: list[str] = []

    def observe(event: SessionEvent) -> None:
        told.append(event.kind)
        db.session.execute(text("DO $$ BEGIN RAISE SQLSTATE '53100'; END $$"))

    completes_without_change(world)

    session = world.refine(observe=observe)

    assert session.status == "completed"
    assert len(told) > 1


def test_a_ledger_that_changes_while_it_is_read_is_read_again(world: World) -> None:
    world.model.say("No.")
    kept: dict[str, int] = {}

    def observe(event: SessionEvent) -> None:
        kept.setdefault(event.kind, len(world.kept()))

    first_kept = "SELECT min(id) FROM agent_memories WHERE discarded_at IS NULL"
    discard = f"UPDATE agent_memories SET discarded_at = now() WHERE id = ({first_kept})"
    with sql.just_before("FOR NO KEY UPDATE OF agents", discard):
        session = world.refine(observe=observe)

    assert session.memories_before == kept["snapshot"] == kept["duplicates"] - 1
    assert len(world.model.requests) == 1
