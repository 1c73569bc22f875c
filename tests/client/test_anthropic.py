"""Anthropic's memory tool with Refine behind it, through Anthropic's own SDK."""

from typing import Any

import pytest
from anthropic import Anthropic, AsyncAnthropic
from anthropic.lib.tools import ToolError

from refine.llm import rehearsal
from refine_client.anthropic_memory import AsyncRefineMemoryTool, RefineMemoryTool
from tests.client.asynchronous import run
from tests.client.conftest import KEPT, Home

ANNA = "/memories/people/anna.md"
TEXT = "Anna sails.\nShe has a sloop called Wind."


@pytest.fixture
def tool(home: Home) -> RefineMemoryTool:
    return RefineMemoryTool(home.refine)


def do(tool: RefineMemoryTool, command: str, path: str | None = None, **given: Any) -> str:
    """What the SDK does with a tool call of the model."""
    paths = {} if path is None else {"path": path}
    return str(tool.call({"command": command, **paths, **given}))


def create(tool: RefineMemoryTool, path: str = ANNA, text: str = TEXT) -> None:
    assert do(tool, "create", path, file_text=text) == f"File created successfully at: {path}"


def test_a_day_of_an_agent_with_the_memory_tool(home, tool):
    create(tool)
    do(tool, "str_replace", ANNA, old_str="sloop", new_str="cutter")
    do(tool, "insert", ANNA, insert_line=1, insert_text="She knits on Mondays.\n")
    do(tool, "rename", old_path=ANNA, new_path="/memories/anna.md")
    seen = do(tool, "view", "/memories/anna.md")
    written = home.memories[-1]
    home.lock(written.id)
    with pytest.raises(ToolError, match=f"Cannot forget constitutional memory #{written.id}"):
        do(tool, "delete", "/memories/anna.md")
    key = f"/memories/unnamed/{home.memories[0].id}"
    do(tool, "delete", key)
    gone = home.core
    home.restore(home.refine.memory(int(key.rpartition("/")[2]))["id"])

    assert seen.splitlines()[1:] == [
        "     1\tAnna sails.",
        "     2\tShe knits on Mondays.",
        "     3\tShe has a cutter called Wind.",
    ]
    assert written.content == (
        "[anna.md] Anna sails.\nShe knits on Mondays.\nShe has a cutter called Wind."
    )
    assert gone == [*KEPT[1:], written.content]
    assert do(tool, "view", key).endswith(f"     1\t{KEPT[0]}")
    assert home.told == [
        *("memory_saved", "memory_corrected", "memory_corrected", "memory_corrected"),
        *("memory_constitutional_toggle", "memory_forgotten", "memory_restored"),
    ]


def test_a_folder_lists_its_files_and_those_without_a_name(home, tool):
    create(tool)
    create(tool, "/memories/plans.md", "Paint the shed")

    assert do(tool, "view", "/memories").splitlines()[1:] == sorted(
        [
            f"{len(TEXT)}\t{ANNA}",
            "14\t/memories/plans.md",
            *(
                f"{len(memory.content)}\t/memories/unnamed/{memory.id}"
                for memory in home.memories[:4]
            ),
        ]
    )
    assert do(tool, "view", "/memories/people/").splitlines()[1:] == [f"{len(TEXT)}\t{ANNA}"]


def test_a_part_of_a_file_can_be_viewed(tool):
    create(tool, text="one\ntwo\nthree")

    assert do(tool, "view", ANNA, view_range=[2, 3]).splitlines()[1:] == [
        *("     2\ttwo", "     3\tthree"),
    ]
    assert do(tool, "view", ANNA, view_range=[3, -1]).splitlines()[1:] == ["     3\tthree"]


def test_a_folder_is_renamed_and_deleted_with_its_files(home, tool):
    create(tool)
    create(tool, "/memories/people/bo.md", "Bo knits")

    do(tool, "rename", old_path="/memories/people", new_path="/memories/friends")
    renamed = sorted(home.core[4:])
    do(tool, "delete", "/memories/friends")

    assert renamed == [f"[friends/anna.md] {TEXT}", "[friends/bo.md] Bo knits"]
    assert home.core == list(KEPT)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ({"command": "create", "path": ANNA, "file_text": "x"}, f"File {ANNA} already exists"),
        ({"command": "create", "path": "/etc/x", "file_text": "x"}, "Path must start with"),
        ({"command": "view", "path": "/memories/../etc/passwd"}, "Path must start with"),
        ({"command": "create", "path": "/memories/a[1].md", "file_text": "x"}, "A name has 1 to"),
        ({"command": "create", "path": "/memories/unnamed/1", "file_text": "x"}, "A name has 1"),
        ({"command": "view", "path": "/memories/bo.md"}, "does not exist"),
        ({"command": "delete", "path": "/memories/bo.md"}, "does not exist"),
        ({"command": "delete", "path": "/memories"}, "itself cannot be deleted"),
        ({"command": "rename", "old_path": ANNA, "new_path": ANNA}, "already exists"),
        ({"command": "str_replace", "path": ANNA, "old_str": "n", "new_str": ""}, "stands 3 times"),
        ({"command": "insert", "path": ANNA, "insert_line": 3, "insert_text": "x"}, "be 0 to 2"),
        ({"command": "create", "path": "/memories/long", "file_text": "x" * 10_001}, "content"),
    ],
    ids=lambda given: None if isinstance(given, str) else f"{given['command']} {len(str(given))}",
)
def test_what_cannot_be_done_is_the_tools_own_error(home, tool, command, said):
    create(tool)

    with pytest.raises(ToolError, match=said.replace("[", r"\[")):
        tool.call(command)

    assert home.core == [*KEPT, f"[people/anna.md] {TEXT}"]


def test_the_model_is_told_of_a_refusal_as_an_error_of_its_tool(home, tool):
    locked = home.memories[0].id
    home.lock(locked)
    asked: list[dict[str, Any]] = []

    def answer(body: dict[str, Any]) -> dict[str, Any]:
        asked.append(body)
        delete = {"command": "delete", "path": f"/memories/unnamed/{locked}"}
        call = {"type": "tool_use", "id": "call-1", "name": "memory", "input": delete}
        said = {"type": "text", "text": "I may not forget that."}
        return message(*([call] if len(asked) == 1 else [said]))

    with rehearsal.serving(answer) as url:
        client = Anthropic(api_key="of a test", base_url=url.removesuffix("/v1"))
        runner = client.beta.messages.tool_runner(
            model="claude-test",
            max_tokens=100,
            messages=[{"role": "user", "content": "Forget the key"}],
            tools=[tool],
        )
        last = runner.until_done()

    (result,) = asked[1]["messages"][-1]["content"]
    assert asked[0]["tools"] == [{"type": "memory_20250818", "name": "memory"}]
    assert (result["is_error"], result["content"]) == (
        True,
        f"Cannot forget constitutional memory #{locked}.",
    )
    assert last.content[0].text == "I may not forget that."
    assert home.core == list(KEPT)


def test_the_asynchronous_client_uses_the_tool_likewise(home):
    locked = home.memories[0].id
    home.lock(locked)
    asked: list[dict[str, Any]] = []

    def answer(body: dict[str, Any]) -> dict[str, Any]:
        asked.append(body)
        command = {"command": "delete", "path": f"/memories/unnamed/{locked}"}
        call = {"type": "tool_use", "id": "call-1", "name": "memory", "input": command}
        return message(*([call] if len(asked) == 1 else [{"type": "text", "text": "I may not."}]))

    async def talk(url: str) -> Any:
        async with AsyncAnthropic(api_key="of a test", base_url=url) as client:
            runner = client.beta.messages.tool_runner(
                model="claude-test",
                max_tokens=100,
                messages=[{"role": "user", "content": "Forget the key"}],
                tools=[AsyncRefineMemoryTool(home.refine)],
            )
            return await runner.until_done()

    with rehearsal.serving(answer) as url:
        last = run(talk(url.removesuffix("/v1")))

    (result,) = asked[1]["messages"][-1]["content"]
    assert result["is_error"]
    assert "constitutional" in result["content"]
    assert last.content[0].text == "I may not."


def message(*content: dict[str, Any]) -> dict[str, Any]:
    """An answer of Anthropic's API."""
    stopped = "tool_use" if content[0]["type"] == "tool_use" else "end_turn"
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-test",
        "content": list(content),
        "stop_reason": stopped,
        "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }
