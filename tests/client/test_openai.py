"""OpenAI Agents SDK's session with Refine behind it, through the SDK's own runner."""

from typing import Any

import pytest
from agents import Agent as SdkAgent, OpenAIChatCompletionsModel, RunConfig, Runner
from flask import Flask
from openai import AsyncOpenAI

from refine.jobs.worker import work
from refine.settings import Settings
from refine_client import Refine, RefineError
from refine_client.openai_session import RefineSession
from tests import factories
from tests.client.asynchronous import run
from tests.client.conftest import KEPT
from tests.scripted_model import ScriptedModel


@pytest.fixture
def answered(
    app: Flask, environ: dict[str, str], model: ScriptedModel, monkeypatch: pytest.MonkeyPatch
) -> ScriptedModel:
    """The scripted model answers the SDK's agent, and Refine's worker."""
    scripted = Settings.from_environ({**environ, "OPENROUTER_BASE_URL": model.base_url})
    monkeypatch.setitem(app.extensions, "refine.settings", scripted)
    model.catalogue = [{"id": "test/model", "supported_parameters": ["tools", "max_tokens"]}]
    return model


async def talk(model: ScriptedModel, session: RefineSession, *said: str) -> Any:
    """What the SDK's agent answers last."""
    async with AsyncOpenAI(api_key="of a test", base_url=model.base_url) as client:
        speaker = OpenAIChatCompletionsModel("test/model", client)
        agent = SdkAgent(name="Wren", instructions="You are Wren.", model=speaker)
        plain = RunConfig(tracing_disabled=True)
        for each in said:
            result = await Runner.run(agent, each, session=session, run_config=plain)
        return result.final_output


@pytest.mark.slow
def test_a_day_of_an_agent_with_a_session(home, answered):
    session = RefineSession("talk-1", home.refine)

    async def conversation() -> Any:
        await talk(answered, session, "My name is Anna", "I sail on Sundays")
        return await session.finish()

    answered.say("Hello Anna").say("Enjoy the wind")
    handed_over = run(conversation())
    answered.tool = "save_memory"
    answered.calls({"content": "Anna sails on Sundays", "memory_type": "journal"}).say(
        "That is all"
    )
    work(burst=True)
    (saved,) = home.refine.memories("Anna")
    new = home.refine.correct(saved["id"], "Anna sails on Mondays")
    locked = home.memories[0].id
    home.lock(locked)
    with pytest.raises(RefineError, match=f"Cannot forget constitutional memory #{locked}"):
        home.refine.forget(locked)
    home.refine.forget(new["id"])
    home.restore(new["id"])

    assert handed_over["status"] == "queued"
    assert "I sail on Sundays" in str(answered.requests[-1]["messages"])
    assert [each["content"] for each in home.refine.memories("Anna")] == ["Anna sails on Mondays"]
    assert home.core == list(KEPT)
    assert home.told == [
        *("memory_saved", "memory_corrected", "memory_constitutional_toggle"),
        *("memory_forgotten", "memory_restored"),
    ]


@pytest.mark.slow
def test_the_model_is_shown_what_was_said_before(home, answered):
    session = RefineSession("talk-1", home.refine)
    answered.say("Hello Anna").say("Your name is Anna")

    last = run(talk(answered, session, "My name is Anna", "What is my name?"))

    assert last == "Your name is Anna"
    assert [each["content"] for each in answered.requests[1]["messages"]] == [
        *("You are Wren.", "My name is Anna", "Hello Anna", "What is my name?"),
    ]


def test_only_what_was_said_is_handed_over(home):
    session = RefineSession("talk-1", home.refine)

    async def conversation() -> Any:
        await session.add_items(
            [
                {"role": "user", "content": "My name is Anna"},
                {"type": "function_call", "call_id": "1", "name": "look", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "1", "output": "nothing"},
                {"role": "assistant", "content": [{"type": "output_text", "text": "Hello"}]},
                {"role": "system", "content": "Be kind"},
                {"role": "user", "content": " "},
            ]
        )
        return await session.finish()

    run(conversation())

    (task,) = factories.live_tasks(home.agent)
    assert task.messages() == [
        {"role": "user", "content": "My name is Anna"},
        {"role": "assistant", "content": "Hello"},
    ]


def test_items_are_returned_removed_and_cleared(home):
    session = RefineSession("talk-1", home.refine)

    async def use() -> list[Any]:
        await session.add_items([{"role": "user", "content": text} for text in "abc"])
        seen: list[Any] = [await session.get_items(limit) for limit in (None, 2, 0, 9)]
        seen += [await session.pop_item(), await session.get_items()]
        await session.clear_session()
        return [*seen, await session.pop_item(), await session.get_items()]

    every, two, none, more, last, left, *cleared = run(use())

    assert [each["content"] for each in every] == ["a", "b", "c"]
    assert (two, none, more) == (every[1:], [], every)
    assert (last, left) == (every[2], every[:2])
    assert cleared == [None, []]


def test_a_conversation_without_words_is_not_handed_over(home):
    assert run(RefineSession("talk-1", home.refine).finish()) is None


def test_a_refused_conversation_is_kept(home):
    session = RefineSession("talk-1", Refine("refine_agent_wrong", home.url))

    async def conversation() -> int:
        await session.add_items([{"role": "user", "content": "My name is Anna"}])
        with pytest.raises(RefineError, match="token"):
            await session.finish()
        return len(await session.get_items())

    assert run(conversation()) == 1
