"""Second readings in a session: before its edits are written, the model reads them once more."""

import json
from decimal import Decimal

import pytest

from refine.extensions import db
from refine.models import AgentMemory, RefinementSession
from tests import factories

OVEN = "The blue bike stands in the cellar of Mira's house, behind the old oven."
WORDY = f"Well, as it happens to be, {OVEN[0].lower()}{OVEN[1:]}"
POORER = OVEN.replace("the old oven", "the oven")
TEA = "Mira drinks green tea with honey every morning before the market opens."
TEA_TOO = "With honey Mira drinks green tea every morning, before the market opens."
OBJECTION = {"leaves_out": ['the "old" of the oven']}


@pytest.fixture
def reader(world):
    """The sessions of the world are read a second time; its agent keeps three memories more."""
    world.variables["REFINE_SECOND_READING"] = "on"
    fill = (factories.text_of(25) for _ in range(20))
    world.use(factories.agent(WORDY, TEA, TEA_TOO, *fill))
    db.session.commit()
    world.model.say("YES")
    return world


def verdict(case=1, **found):
    return {"case": case, "leaves_out": [], "adds": [], "changes": [], **found}


def reads(world, *verdicts, **fields):
    """Script the answer to a second reading, by its tool."""
    world.model.tool = "second_reading"
    world.model.calls({"cases": [*verdicts]}, **fields)
    world.model.tool = "refinement"


def updates(world, content=OVEN):
    world.model.call("update", id=world.ids[0], content=content)


def completed(world):
    world.model.call("complete", summary="Done.")
    session = world.refine()
    assert (session.status, world.model.left) == ("completed", 0)
    return session


def cases(world, number):
    """The cases that one of the requests showed."""
    shown = world.asked(number)[-1]["content"]
    return [json.loads(line) for line in shown.splitlines() if line.startswith('{"case"')]


def said(memories):
    return [text for each in memories for text in each.values()]


def rewrite(memory_id):
    db.session.get_one(AgentMemory, memory_id).content = "another text"


def contents(world):
    return [memory.content for memory in db.session.scalars(world.agent.ledger.core())]


# -- what comes of it ------------------------------------------------------------------------------


def test_an_edit_is_refused_with_the_words_of_the_reader_and_written_once_mended(reader):
    updates(reader, POORER)
    reads(reader, verdict(**OBJECTION))
    updates(reader)
    reads(reader, verdict())

    session = completed(reader)

    refused, updated = map(json.loads, reader.results()[:2])
    assert 'it leaves out: the "old" of the oven' in refused["error"]
    assert updated["type"] == "updated"
    assert OVEN in contents(reader)
    assert session.stats["refused_second_reading"] == 1
    assert session.edits["updated"] == 1


def test_an_answer_in_words_counts_too(reader):
    updates(reader, POORER)
    reader.model.say(f"<think>{{}}</think>Here:\n{json.dumps(verdict(**OBJECTION))}")

    completed(reader)

    assert WORDY in contents(reader)


def test_an_unusable_answer_is_asked_for_once_more_and_then_the_code_decides_alone(reader):
    updates(reader)
    reads(reader)
    reader.model.say("It looks fine to me.")

    session = completed(reader)

    assert "could not be used" in reader.asked(3)[-1]["content"]
    assert OVEN in contents(reader)
    assert session.stats["unread"] == 1


def test_an_edit_that_is_tried_again_as_it_was_is_not_read_again(reader):
    updates(reader, POORER)
    reads(reader, verdict(**OBJECTION))
    updates(reader, POORER)

    session = completed(reader)

    assert session.stats["refused_second_reading"] == 2
    assert session.reading_calls == 1


def test_no_words_of_the_reader_are_kept(reader):
    updates(reader, POORER)
    reads(reader, verdict(leaves_out=["the canary"]))

    session = completed(reader)

    kept = [record.data | record.sealed for record in reader.records(session)]
    assert "canary" not in json.dumps(kept, default=str)
    assert "canary" not in json.dumps(session.facts(), default=str)


# -- what is asked ---------------------------------------------------------------------------------


def test_all_edits_of_one_reply_are_read_in_one_conversation_that_knows_nothing_else(reader):
    wordy, tea, _ = reader.ids[:3]
    reader.model.calls(
        {"action": "search", "query": "tea"},
        {"action": "update", "id": wordy, "content": OVEN},
        {"action": "delete", "id": tea},
        {"action": "delete", "id": 999_999},
        "no JSON",
    )
    reads(reader, verdict(2), verdict(1))

    completed(reader)

    session, reading = reader.model.requests[1:3]
    rewrite, removal = cases(reader, 2)
    assert rewrite["after"] == OVEN
    assert said(rewrite["before"]) == [WORDY]
    assert "after" not in removal
    assert said(removal["kept"])[0] == TEA_TOO
    assert [each["role"] for each in reading["messages"]] == ["system", "user"]
    assert reader.agent.effective("system_prompt")[0] not in reading["messages"][0]["content"]
    assert reading["session_id"] != session["session_id"]
    assert [tool["function"]["name"] for tool in reading["tools"]] == ["second_reading"]
    assert "A second reading" not in json.dumps(reader.asked(-1))


def test_an_edit_is_read_as_if_those_before_it_in_the_reply_were_made(reader):
    """Each of two memories carries the other: what is said of both together holds of one."""
    tea, too = reader.ids[1:3]
    reader.model.calls({"action": "delete", "id": tea}, {"action": "delete", "id": too})
    reads(reader, verdict(1), verdict(2, leaves_out=["the tea"]))

    session = completed(reader)

    assert TEA not in said(cases(reader, 2)[1]["kept"])
    assert contents(reader)[1] == TEA_TOO
    assert session.edits["deleted"] == 1


def test_an_edit_that_depends_on_another_text_is_read_again_with_what_follows_it(reader):
    wordy, tea, too = reader.ids[:3]
    shorter = TEA_TOO.replace(", before", " before")
    edits = [{"action": "update", "id": too, "content": shorter}, {"action": "delete", "id": tea}]
    unreadable = [{"action": "delete", "id": 999_999}] * 8
    reader.model.calls(*edits, *unreadable, {"action": "update", "id": wordy, "content": OVEN})
    reads(reader, verdict(1), verdict(2))
    reads(reader, verdict(1), verdict(2))

    session = completed(reader)

    read_again, following = cases(reader, 3)
    assert shorter in said(read_again["kept"])
    assert following["after"] == OVEN
    assert (session.mutation_count, session.reading_calls) == (3, 2)


def test_what_changed_while_it_was_read_is_not_overwritten(reader):
    updates(reader)
    reads(reader, verdict())
    id_ = reader.ids[0]
    reader.model.meanwhile(reader.elsewhere(lambda _: rewrite(id_)))

    completed(reader)

    (refused,) = map(json.loads, reader.results())
    assert "has changed since you last saw it" in refused["error"]
    assert contents(reader)[0] == "another text"


def test_nothing_is_asked_about_what_the_code_refuses_or_follows_the_end(reader):
    denied = WORDY.replace("stands", "never stands")
    reader.model.calls(
        {"action": "update", "id": reader.ids[0], "content": denied},
        {"action": "protect", "id": reader.ids[1]},
        {"action": "complete", "summary": "Done."},
        {"action": "delete", "id": reader.ids[2]},
    )

    session = reader.refine()

    assert (session.status, session.reading_calls) == ("completed", 0)


@pytest.mark.parametrize("setting", [("SECOND_READING", "off"), ("DETAILS", "count")])
def test_nothing_is_asked_where_a_setting_says_so(reader, setting):
    reader.variables[f"REFINE_{setting[0]}"] = setting[1]
    updates(reader)

    assert completed(reader).reading_calls == 0
    assert OVEN in contents(reader)


def test_what_is_too_large_for_the_model_is_not_read(reader):
    reader.variables["REFINE_CONTEXT_TOKENS"] = "14000"
    reader.use(factories.agent("語" * 10_000, *(factories.text_of(10) for _ in range(8))))
    db.session.commit()
    long, *others = reader.ids
    reader.model.calls(*({"action": "delete", "id": id_, "by": long} for id_ in others[:2]))

    session = completed(reader)

    assert (session.reading_calls, session.stats["unread"]) == (0, 2)


def test_what_does_not_fit_at_once_is_read_in_halves(reader):
    reader.variables["REFINE_CONTEXT_TOKENS"] = "16000"
    fill = (factories.text_of(tokens) for tokens in (2_000, *[10] * 8))
    reader.use(factories.agent(OVEN, *fill))
    db.session.commit()
    target, long, *others = reader.ids
    removals = ({"action": "delete", "id": id_, "by": long} for id_ in others[:4])
    reader.model.calls({"action": "delete", "id": target, "reason": "wrong"}, *removals)
    reads(reader, verdict(1, leaves_out=["the bike"]), verdict(2))
    reads(reader, verdict(1), verdict(2), verdict(3))

    session = completed(reader)

    assert [len(cases(reader, number)) for number in (2, 3)] == [2, 3]
    assert (session.stats["refused_second_reading"], session.edits["deleted"]) == (1, 4)
    assert "unread" not in session.stats
    assert OVEN in contents(reader)


def test_only_as_many_calls_are_read_as_may_still_be_carried_out(reader):
    reader.use(factories.agent(*(factories.text_of(20) for _ in range(40))))
    db.session.commit()
    reader.model.calls(*({"action": "delete", "id": id_} for id_ in reader.ids[:20]))
    reads(reader, *(verdict(number) for number in range(1, 11)))

    session = completed(reader)

    assert (session.mutation_count, session.reading_calls) == (10, 1)


def test_only_what_got_no_usable_verdict_is_asked_for_again(reader):
    wordy, tea, _ = reader.ids[:3]
    reader.model.calls(
        {"action": "update", "id": wordy, "content": POORER}, {"action": "delete", "id": tea}
    )
    reads(reader, verdict(1, **OBJECTION), {"case": 2, "left_out": ["honey"]})
    reads(reader, verdict(1))

    session = completed(reader)

    assert ["kept" in case for case in cases(reader, 3)] == [True]
    assert (session.stats["refused_second_reading"], session.edits["deleted"]) == (1, 1)


# -- what it costs ---------------------------------------------------------------------------------


def test_its_calls_tokens_and_cost_are_counted_among_all_and_apart(reader):
    usage = {"prompt_tokens": 700, "completion_tokens": 30, "total_tokens": 730, "cost": 0.002}
    updates(reader)
    reads(reader, verdict(), usage=usage)

    session = completed(reader)

    assert (session.llm_calls, session.reading_calls, session.turns) == (4, 1, 2)
    assert (session.reading_prompt_tokens, session.prompt_tokens) == (700, 1_000)
    assert (session.reading_completion_tokens, session.completion_tokens) == (30, 60)
    assert session.reading_cost_usd == Decimal("0.002")
    assert session.measured()["reading_cost_usd"] == "0.002000"


def test_a_stop_while_it_is_read_writes_nothing(reader):
    updates(reader)
    reads(reader, verdict())
    reader.model.meanwhile(reader.elsewhere(RefinementSession.request_stop))

    session = reader.refine()

    assert (session.status, session.mutation_count) == ("incomplete", 0)


def test_a_fault_of_the_provider_ends_the_session_as_with_any_call(reader):
    updates(reader)
    reader.model.http(401)

    session = reader.refine()

    assert (session.status, session.error_kind) == ("failed", "unauthorized")
    assert WORDY in contents(reader)


def test_a_newcomer_sees_it_with_the_rehearsal_model(world):
    repeats = ("The bus leaves at nine.", "The bus leaves at nine!")
    world.use(factories.agent(*repeats, factories.text_of(100), model_id="rehearsal/wren"))
    db.session.commit()
    world.variables |= {
        "REFINE_SECOND_READING": "on",
        "REFINE_REHEARSAL": "1",
        "OPENROUTER_API_KEY": "",
    }

    session = world.refine()

    assert (session.status, session.stats["consolidated"]) == ("completed", 2)
    assert session.reading_calls == 1
