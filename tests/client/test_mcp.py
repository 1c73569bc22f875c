"""The MCP server, used by the official client over both of its transports."""

import sys
from collections.abc import Awaitable, Callable
from typing import Any

import httpx2
import pytest
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from refine.extensions import db
from refine_client.mcp_server import server
from tests import factories
from tests.client.asynchronous import run
from tests.client.conftest import KEPT, Home
from tests.commands import REFINE, environment, refine

# What a client of the server does, for an agent's token.
Use = Callable[[str, Callable[[Client], Awaitable[Any]]], Any]


@pytest.fixture
def over_stdio(home: Home) -> Use:
    """As a desktop client starts it: a command, with an environment."""

    def use(token: str, work: Callable[[Client], Awaitable[Any]]) -> Any:
        environ = environment({"REFINE_URL": home.url, "REFINE_TOKEN": token})
        return used(Client(StdioServerParameters(command=REFINE, args=["mcp"], env=environ)), work)

    return use


@pytest.fixture
def over_http(mcp_url: str, home: Home) -> Use:
    """As a process of its own serves it, to whoever sends a token."""

    def use(token: str, work: Callable[[Client], Awaitable[Any]]) -> Any:
        async def connected() -> Any:
            headers = {"Authorization": f"Bearer {token}"} if token else {}
            async with (
                httpx2.AsyncClient(headers=headers) as http,
                Client(streamable_http_client(mcp_url, http_client=http)) as client,
            ):
                return await work(client)

        return run(connected())

    return use


@pytest.fixture(params=["stdio", "http"])
def use(request: pytest.FixtureRequest, over_http: Use, over_stdio: Use) -> Use:
    return over_http if request.param == "http" else over_stdio


def used(client: Client, work: Callable[[Client], Awaitable[Any]]) -> Any:
    async def connected() -> Any:
        async with client:
            return await work(client)

    return run(connected())


def calling(tool: str, **arguments: Any) -> Callable[[Client], Awaitable[Any]]:
    """Call one tool; return whether it failed, and what it said."""

    async def call(client: Client) -> Any:
        result = await client.call_tool(tool, arguments)
        return result.is_error, " ".join(each.text for each in result.content)

    return call


@pytest.mark.slow
def test_every_tool_does_what_it_says(home, use):
    home.after_a_session()
    grant = factories.live_grant(home.agent, factories.user(account=home.agent.account))
    db.session.commit()

    async def day(client: Client) -> dict[str, Any]:
        answers: dict[str, Any] = {}

        async def call(tool: str, **arguments: Any) -> Any:
            result = await client.call_tool(tool, arguments)
            assert not result.is_error, result.content
            answers[tool] = result.structured_content
            return result.structured_content

        saved = await call("save_memory", content="Anna sails on Sundays")
        found = await call("search_memories", query="sails")
        assert [each["id"] for each in found["result"]] == [saved["id"]]
        new = await call("correct_memory", memory_id=saved["id"], content="Anna sails on Mondays")
        await call("forget_memory", memory_id=new["id"])
        await call("self_authoring", action="view", field="name")
        await call("sessions")
        await call("undo_last_session")
        await call("who_may_read_me")
        await call("revoke_access", grant_id=str(grant.id))
        await call("request_refinement")
        listed = {tool.name for tool in (await client.list_tools()).tools}
        assert listed == answers.keys()
        return answers

    answers = use(home.token, day)

    assert answers["self_authoring"]["value"] == "Wren"
    assert len(answers["sessions"]["result"]) == 1
    assert answers["undo_last_session"]["effect"]["brought_back"] == 1
    assert answers["who_may_read_me"]["result"][0]["status"] == "granted"
    assert answers["request_refinement"]["status"] == "queued"
    assert len(home.core) == len(KEPT) + 20
    told = home.told
    for action in ("memory_saved", "memory_corrected", "memory_forgotten"):
        assert told.count(action) == 1


@pytest.mark.slow
def test_the_memory_is_a_resource_and_a_prompt(home, use):
    async def read(client: Client) -> tuple[str, str]:
        resource = await client.read_resource("memory://context")
        prompt = await client.get_prompt("memory")
        return resource.contents[0].text, prompt.messages[0].content.text

    resource, prompt = use(home.token, read)

    assert resource.startswith("## Core memories")
    assert KEPT[0] in resource
    assert prompt == f"This is what you remember:\n\n{resource}"


@pytest.mark.slow
def test_a_refused_edit_is_the_tools_own_error(home, use):
    locked = home.memories[0].id
    home.lock(locked)

    is_error, said = use(home.token, calling("forget_memory", memory_id=locked))

    assert is_error
    assert said.endswith(f"Cannot forget constitutional memory #{locked}.")
    assert home.core == list(KEPT)


@pytest.mark.slow
def test_a_wrong_token_is_told_plainly(home, use):
    is_error, said = use("refine_agent_wrong", calling("search_memories", query="key"))

    assert is_error
    assert "token" in said


@pytest.mark.slow
def test_a_wrong_token_reads_no_resource(home, use):
    async def read(client: Client) -> str:
        with pytest.raises(MCPError) as refused:
            await client.read_resource("memory://context")
        return str(refused.value)

    assert "token" in use("refine_agent_wrong", read)


@pytest.mark.slow
def test_over_http_each_request_acts_for_its_own_token(home, over_http):
    assert over_http(home.token, calling("search_memories", query="key"))[0] is False
    assert over_http("", calling("search_memories", query="key"))[0] is True


def test_a_request_without_a_token_does_not_get_that_of_the_server(home, monkeypatch):
    monkeypatch.setenv("REFINE_TOKEN", home.token)

    is_error, said = used(Client(server(home.url)), calling("search_memories", query="key"))

    assert is_error
    assert "token" in said


def test_a_refused_setting_is_the_tools_own_error(home):
    asked = calling("self_authoring", action="update", field="name")

    is_error, said = used(Client(server(home.url, home.token)), asked)

    assert is_error
    assert said.endswith("value required for update")


def test_what_a_tool_refuses_is_in_no_log(home, caplog):
    caplog.set_level("INFO")

    is_error, said = used(
        Client(server(home.url, home.token)), calling("revoke_access", grant_id="x")
    )

    assert is_error
    assert said not in caplog.text
    assert "revoke_access" not in caplog.text


def test_a_tool_says_whether_it_only_reads(home):
    async def hints(client: Client) -> dict[str, bool | None]:
        tools = (await client.list_tools()).tools
        return {tool.name: tool.annotations and tool.annotations.read_only_hint for tool in tools}

    listed = used(Client(server(home.url, home.token)), hints)

    assert {name for name, only_reads in listed.items() if only_reads} == {
        *("search_memories", "sessions", "who_may_read_me"),
    }


def test_the_settings_are_those_that_the_tool_of_refine_names(home):
    async def fields(client: Client) -> list[str]:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        listed: list[str] = tools["self_authoring"].input_schema["properties"]["field"]["enum"]
        return listed

    offered = {each["function"]["name"]: each["function"] for each in home.refine.tools()}

    ours = used(Client(server(home.url, home.token)), fields)

    assert ours == offered["self_authoring"]["parameters"]["properties"]["field"]["enum"]


def test_over_stdio_it_needs_a_token():
    done = refine("mcp", environ={})

    assert done.returncode == 2
    assert "set REFINE_TOKEN to the token of the agent" in done.stderr


def test_without_its_package_it_says_what_to_install(run_under, monkeypatch):
    monkeypatch.setitem(sys.modules, "mcp.server.context", None)
    monkeypatch.delitem(sys.modules, "refine_client.mcp_server")

    done = run_under({"REFINE_TOKEN": "refine_agent_x"}, "mcp")

    assert done.returncode == 1
    assert "pip install 'refine[mcp]'" in done.stderr
