"""Which blocks of a Letta file are imported, and what else a file may look like."""

import json
from typing import Any

import pytest

from refine.transfer import wrapped_json
from refine.transfer.formats import rows_of
from refine.transfer.letta_agents import AgentUnclear
from refine.transfer.rows import Incoming, LeftOut, Row
from tests.transfer.files import bad, fixture, memories, read, stream

OTHER = LeftOut("other block")


def read_as(file: bytes | str, agent: str) -> list[Row]:
    return list(rows_of(stream(file), "letta", file_agent=agent))


def of_agents(*agents: dict[str, Any], blocks: int = 3) -> str:
    """A file with these agents, and blocks with the ids 0, 1 and so on."""
    listed = [{"id": str(number), "value": f"block {number}"} for number in range(blocks)]
    return json.dumps({"agents": agents, "blocks": listed})


def contents(rows: list[Row]) -> list[str]:
    return [row.content for row in memories(rows)]


class TestBlocks:
    def test_only_those_of_the_agent_are_imported(self) -> None:
        rows = read(fixture("agent-with-other-blocks.af"), "letta")

        assert [isinstance(row, Incoming) for row in rows] == [True, False, True, False]
        assert [row for row in rows if not isinstance(row, Incoming)] == [OTHER, OTHER]

    def test_all_are_others_if_the_agent_has_none(self) -> None:
        assert read(of_agents({"block_ids": []}), "letta") == [OTHER] * 3

    def test_a_block_without_an_id_is_not_the_agents(self) -> None:
        file = {"agents": [{"block_ids": ["0"]}], "blocks": [{"value": "whose?"}]}

        assert read(json.dumps(file), "letta") == [OTHER]

    def test_all_are_imported_if_the_file_does_not_tell(self) -> None:
        for agents in ([], [{"name": "Rook"}], [{"block_ids": "0"}], [{"id": "a"}, {"id": "b"}]):
            assert len(memories(read(of_agents(*agents), "letta"))) == 3, agents

    def test_agents_may_share_them_or_have_none(self) -> None:
        agents = [{"block_ids": []}, {"block_ids": ["0", "1"]}, {"block_ids": ["1", "0"]}, {}]

        assert contents(read(of_agents(*agents), "letta")) == ["block 0", "block 1"]

    def test_blocks_of_version_1_are_all_the_agents(self) -> None:
        file = {"agents": [{"block_ids": ["0"]}], "core_memory": [{"value": "a block"}]}

        assert contents(read(json.dumps(file), "letta")) == ["a block"]


class TestSeveralAgents:
    def test_are_listed_if_none_is_chosen(self) -> None:
        with pytest.raises(AgentUnclear) as refusal:
            read(fixture("agents.af"), "letta")

        assert str(refusal.value) == (
            "the file holds 2 agents; choose one by name or id: "
            "Rook (agent-0, 2 blocks), Rook-sleeptime (agent-1, 2 blocks)"
        )

    @pytest.mark.parametrize("blocks_come_first", [False, True])
    def test_are_told_apart_wherever_the_blocks_stand(self, blocks_come_first: bool) -> None:
        file = json.loads(of_agents({"block_ids": ["0"]}, {"block_ids": ["1"]}))
        fields = sorted(file.items(), reverse=blocks_come_first)

        with pytest.raises(AgentUnclear):
            read(json.dumps(dict(fields)), "letta")

    @pytest.mark.parametrize("agent", ["Rook-sleeptime", "agent-1"])
    def test_one_is_chosen_by_name_or_id(self, agent: str) -> None:
        rows = read_as(fixture("agents.af"), agent)

        assert rows[0] == OTHER
        assert contents(rows) == [
            "I am patient with beginners.",
            "Asks to be reminded of the frost.",
        ]

    def test_an_id_comes_before_a_name(self) -> None:
        first = {"id": "a", "name": "b", "block_ids": ["0"]}
        second = {"id": "b", "name": "a", "block_ids": ["1"]}

        assert contents(read_as(of_agents(first, second), "b")) == ["block 1"]

    def test_of_the_same_name_are_chosen_by_id(self) -> None:
        agents = [{"id": id_, "name": "Rook", "block_ids": [id_]} for id_ in ("0", "1")]

        with pytest.raises(AgentUnclear) as refusal:
            read_as(of_agents(*agents), "Rook")

        assert str(refusal.value) == (
            "the file holds several agents of this name; choose one by id: "
            "Rook (0, 1 block), Rook (1, 1 block)"
        )

    def test_are_listed_if_the_chosen_one_is_not_there(self) -> None:
        with pytest.raises(AgentUnclear) as refusal:
            read_as(fixture("agent-with-other-blocks.af"), "rook")

        assert str(refusal.value) == (
            "the file holds no agent with this name or id; it holds Rook (agent-0, 2 blocks)"
        )

    def test_one_cannot_be_chosen_where_the_file_names_none(self) -> None:
        for name in ("agent-v1.af", "passages.json"):
            with pytest.raises(AgentUnclear, match="with this name or id; it names none"):
                read_as(fixture(name), "Wren")

    def test_are_listed_safely_for_a_terminal(self) -> None:
        agents = [
            {"name": "Rook\x1b[2J\u202e", "id": "x" * 100, "block_ids": ["0"]},
            *({"block_ids": [str(number)]} for number in range(30)),
        ]

        with pytest.raises(AgentUnclear) as refusal:
            read(of_agents(*agents), "letta")

        said = str(refusal.value)
        assert f"Rook?[2J? ({'x' * 59}…, 1 block), no name (no id, 1 block)" in said
        assert said.endswith(", and 11 more")

    def test_one_with_long_messages_is_still_listed(self) -> None:
        message = {"content": "x" * 1_500_000}
        agent = {"block_ids": ["0"], "messages": [message, message], "name": "Rook"}

        assert contents(read(of_agents(agent), "letta")) == ["block 0"]

    def test_damage_is_reported_once(self) -> None:
        file = of_agents({"block_ids": ["0"]})[:-1]

        rows = read(file, "letta")

        assert bad(rows) == [("file", "is not valid JSON in UTF-8: it is damaged or was cut off")]


class TestAFileInAString:
    def test_is_read_like_the_file_itself(self) -> None:
        wrapped, plain = (
            read(fixture(name), "letta")
            for name in ("agent-in-a-string.af", "agent-with-other-blocks.af")
        )

        assert wrapped == plain

    def test_may_follow_a_byte_order_mark_and_blanks(self) -> None:
        file = b"\xef\xbb\xbf \n" + fixture("agent-in-a-string.af")

        assert len(memories(read(file, "letta"))) == 2

    def test_is_bad_if_it_is_damaged(self) -> None:
        for file, reason in (
            ('"{\\"agents\\": ', "must be valid JSON"),
            ('"{}" "{}"', "must be valid JSON"),
            ('"\\ud800"', "must be valid Unicode (it contains half of a surrogate pair)"),
            ('"not JSON"', "is not valid JSON in UTF-8: it is damaged or was cut off"),
        ):
            assert bad(read(file, "letta")) == [("file", reason)], file

    def test_is_refused_if_it_is_too_long(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(wrapped_json, "MAX_WRAPPED_BYTES", 1_000_000)
        text = json.dumps("x" * 1_000_000)

        ((place, reason),) = bad(read(text, "letta"))

        assert place == "file"
        assert reason == ("is a JSON string of more than 1 MB; unwrap it first (jq -r . FILE)")


def test_an_agent_without_named_blocks_does_not_get_those_of_another() -> None:
    file = {
        "agents": [
            {"id": "agent-0", "name": "Ada", "block_ids": ["block-0"]},
            {"id": "agent-1", "name": "Bo"},
        ],
        "blocks": [{"id": "block-0", "label": "human", "value": "Keeps bees"}],
    }

    rows = list(rows_of(stream(json.dumps(file)), "letta", file_agent="Bo"))

    assert not any(isinstance(row, Incoming) for row in rows)
