"""The demo account: every agent ends as it was written to end, reckoned from the file alone."""

import json
import math
import re
from fractions import Fraction
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from refine.llm.rehearsal import answer
from refine.rules.model_names import is_rehearsal_model

ROOT = Path(__file__).resolve().parents[2]
DEMO: dict[str, Any] = json.loads((ROOT / "refine/demo/agents.json").read_text(encoding="utf-8"))
AGENTS: dict[str, dict[str, Any]] = {agent["name"]: agent for agent in DEMO["agents"]}
MEMORIES = [memory for agent in DEMO["agents"] for memory in agent["memories"]]

TAGS = {"audio", "somatic", "voice", "relational"}
AGENT_FIELDS = {
    "name",
    "model_id",
    "system_prompt",
    "memory_reflection_prompt",
    "reflects_daily",
    "refinement_prompt",
    "refinement_threshold",
    "core_token_budget",
    "paused",
    "memories",
}
MEMORY_FIELDS = {"content", "memory_type", "days_ago", "tags", "constitutional"}

Memory = dict[str, Any]


# The rules of Refine that decide how a session ends, written out once more


def core(name: str) -> list[Memory]:
    kept = [memory for memory in AGENTS[name]["memories"] if memory["memory_type"] == "core"]
    return sorted(kept, key=lambda memory: -memory["days_ago"])


def locked(memory: Memory) -> bool:
    tags = set(memory.get("tags", []))
    return bool(memory.get("constitutional")) or bool(tags & {"audio", "somatic", "voice"})


def without_exact_duplicates(memories: list[Memory]) -> list[Memory]:
    groups: dict[str, list[Memory]] = {}
    for memory in memories:
        groups.setdefault(memory["content"].strip().lower(), []).append(memory)
    kept = ([m for m in group if locked(m)] or group[:1] for group in groups.values())
    return [memory for survivors in kept for memory in survivors]


def tokens(content: str) -> int:
    return math.ceil(len(content) / 4)


def mass(memories: list[Memory]) -> int:
    return sum(tokens(memory["content"]) for memory in memories)


def budget(name: str) -> int:
    return int(AGENTS[name].get("core_token_budget", 5000))


def removable(name: str) -> int:
    whole = mass(without_exact_duplicates(core(name)))
    threshold = Fraction(str(AGENTS[name].get("refinement_threshold", 0.75)))
    return whole - math.ceil(max(threshold, Fraction(1, 2)) * whole)


def conversation(name: str) -> list[dict[str, Any]]:
    lines = [
        json.dumps(
            {
                "id": number,
                "date": "2026-03-01",
                "tokens": tokens(memory["content"]),
                "constitutional": bool(memory.get("constitutional")),
                "tags": memory.get("tags", []),
                "content": memory["content"],
            }
        )
        for number, memory in enumerate(without_exact_duplicates(core(name)))
    ]
    style = AGENTS[name].get("refinement_prompt", "De-duplicate only.")
    return [
        {"role": "system", "content": AGENTS[name]["system_prompt"]},
        {"role": "user", "content": "\n".join([*lines, "Do you consent? YES or NO."])},
        {"role": "assistant", "content": "YES."},
        {"role": "user", "content": f"The rules.\n<style>\n{style}\n</style>"},
    ]


def reply(name: str, messages: list[dict[str, Any]]) -> dict[str, Any]:
    completion = answer({"model": AGENTS[name]["model_id"], "messages": messages})
    message: dict[str, Any] = completion["choices"][0]["message"]
    return message


def consents(name: str) -> bool:
    content: str = reply(name, conversation(name)[:2])["content"]
    return content.startswith("YES")


def operations(name: str) -> list[dict[str, Any]]:
    """Return the arguments of what the agent's model calls before it completes."""
    messages, calls = conversation(name), []
    while True:
        message = reply(name, messages)
        calls.append(json.loads(message["tool_calls"][0]["function"]["arguments"]))
        if calls[-1]["action"] == "complete":
            return calls[:-1]
        messages += [message, {"role": "tool", "content": '{"type": "ok"}'}]


def removed_by_merges(name: str) -> int:
    ledger = without_exact_duplicates(core(name))
    return sum(
        mass([ledger[number] for number in call["ids"]]) - tokens(call["content"])
        for call in operations(name)
    )


def plain_words(content: str) -> list[str]:
    return re.sub(r"[^\w\s]", "", content.lower()).split()


def plain_repeats(memories: list[Memory]) -> int:
    unlocked = [memory for memory in memories if not locked(memory)]
    return len(unlocked) - len({tuple(plain_words(memory["content"])) for memory in unlocked})


# What each agent is there to show


def test_wren_gets_within_its_budget_by_merging_plain_repeats() -> None:
    whole, ledger = core("Wren"), without_exact_duplicates(core("Wren"))

    merges, removed = operations("Wren"), removed_by_merges("Wren")

    assert 40 <= len(whole) <= 60
    assert len(ledger) < len(whole)
    assert mass(ledger) > budget("Wren")
    assert {call["action"] for call in merges} == {"consolidate"}
    assert 1 <= len(merges) <= 10
    assert 0 < removed <= removable("Wren") // 2
    assert mass(ledger) - removed <= budget("Wren")


def test_wren_merges_every_plain_repeat_and_nothing_else() -> None:
    ledger = without_exact_duplicates(core("Wren"))

    groups = [[ledger[number] for number in call["ids"]] for call in operations("Wren")]

    assert sum(len(group) - 1 for group in groups) == plain_repeats(ledger)
    assert not any(locked(memory) for group in groups for memory in group)
    assert any("relational" in m.get("tags", []) for group in groups for m in group)


def test_wren_keeps_similar_memories() -> None:
    ledger = without_exact_duplicates(core("Wren"))

    merged = {number for call in operations("Wren") for number in call["ids"]}
    left = [memory["content"] for number, memory in enumerate(ledger) if number not in merged]

    for opening in ("Mr. Halloran asked about the radio", "Yusuf told me about the orchard"):
        assert len([content for content in left if content.startswith(opening)]) == 2


def test_wren_has_memories_of_every_kind() -> None:
    memories = core("Wren")

    assert {tag for memory in memories for tag in memory.get("tags", [])} == TAGS
    assert any(memory.get("constitutional") for memory in memories)
    assert not all(memory.get("constitutional") for memory in memories)


def test_halyard_is_within_budget_and_merges_a_few_repeats() -> None:
    assert mass(core("Halyard")) <= budget("Halyard")
    assert consents("Halyard")
    assert [call["action"] for call in operations("Halyard")] == ["consolidate"] * 2
    assert 0 < removed_by_merges("Halyard") <= removable("Halyard")


def test_fathom_is_within_budget_and_changes_nothing() -> None:
    assert mass(core("Fathom")) <= budget("Fathom")
    assert consents("Fathom")
    assert operations("Fathom") == []
    assert removable("Fathom") > 0


def test_trema_loses_an_exact_duplicate_and_then_declines() -> None:
    whole = core("Trema")

    assert len(without_exact_duplicates(whole)) == len(whole) - 1
    assert not consents("Trema")


def test_only_trema_declines() -> None:
    assert [name for name in AGENTS if not consents(name)] == ["Trema"]


def test_cairn_is_skipped_because_all_its_core_memories_are_constitutional() -> None:
    assert core("Cairn")
    assert all(memory.get("constitutional") for memory in core("Cairn"))


def test_only_cairn_and_crumb_have_nothing_to_refine() -> None:
    nothing = [name for name in AGENTS if all(map(locked, core(name)))]

    assert nothing == ["Cairn", "Crumb"]


def test_only_loam_is_paused_with_work_for_a_manual_run() -> None:
    assert [name for name, agent in AGENTS.items() if agent.get("paused")] == ["Loam"]
    assert len(operations("Loam")) == 2
    assert 0 < removed_by_merges("Loam") <= removable("Loam")


def test_petrel_asks_for_wholesale_deletion_and_may_delete_more_than_one_memory() -> None:
    unlocked = [memory for memory in core("Petrel") if not locked(memory)]
    sizes = sorted(tokens(memory["content"]) for memory in unlocked)

    deletions = operations("Petrel")

    assert {call["action"] for call in deletions} == {"delete"}
    assert len(deletions) == len(unlocked)
    assert sizes[-1] + sizes[-2] <= removable("Petrel")


def test_crumb_has_a_journal_and_no_core_memory() -> None:
    assert not core("Crumb")
    assert AGENTS["Crumb"]["memories"]


def test_only_wren_is_over_budget() -> None:
    assert [name for name in AGENTS if mass(core(name)) > budget(name)] == ["Wren"]


def test_some_journal_memories_are_recent_and_some_expired() -> None:
    ages = [memory["days_ago"] for memory in MEMORIES if memory["memory_type"] == "journal"]

    assert any(days < 7 for days in ages)
    assert any(days > 7 for days in ages)


# What the file may hold


def test_the_account_is_valid() -> None:
    assert DEMO["account"]["slug"] == "demo"
    assert DEMO["account"]["name"].strip() == DEMO["account"]["name"] != ""
    assert ZoneInfo(DEMO["account"]["time_zone"])


def test_agent_names_are_unique() -> None:
    assert len(AGENTS) == len(DEMO["agents"]) >= 6


@pytest.mark.parametrize("agent", DEMO["agents"], ids=lambda agent: agent["name"])
def test_agents_are_valid(agent: dict[str, Any]) -> None:
    named = ("system_prompt", "memory_reflection_prompt", "refinement_prompt")
    prompts = [agent.get(name, "none") for name in named]

    assert set(agent) <= AGENT_FIELDS
    assert is_rehearsal_model(agent["model_id"])
    assert agent.get("reflects_daily", False) == ("memory_reflection_prompt" in agent)
    assert all(prompt == prompt.strip() and 0 < len(prompt) <= 10_000 for prompt in prompts)
    assert 0 < agent.get("refinement_threshold", 0.75) <= 1
    assert agent.get("core_token_budget", 5000) > 0


@pytest.mark.parametrize("memory", MEMORIES, ids=lambda memory: memory["content"][:24])
def test_memories_are_valid(memory: Memory) -> None:
    content = memory["content"]

    assert set(memory) <= MEMORY_FIELDS
    assert content == content.strip()
    assert 1 <= len(content) <= 10_000
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\ud800-\udfff]", content)
    assert memory["memory_type"] in {"core", "journal"}
    assert isinstance(memory["days_ago"], int)
    assert memory["days_ago"] >= 0
    assert set(memory.get("tags", [])) <= TAGS


def test_core_memories_of_wren_have_a_sensible_length() -> None:
    assert all(30 <= len(memory["content"]) <= 400 for memory in core("Wren"))


def test_the_file_has_more_than_ascii() -> None:
    contents = "".join(memory["content"] for memory in MEMORIES)

    assert any(ord(character) > 0xFFFF for character in contents)
    assert "Bożena" in contents


def test_only_the_style_of_petrel_asks_for_deletion() -> None:
    deleting = [
        name
        for name in AGENTS
        if core(name) and operations(name)[:1] and operations(name)[0]["action"] == "delete"
    ]

    assert deleting == ["Petrel"]
