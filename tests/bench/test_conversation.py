"""What a model reads from a request."""

from bench.simulated_models.conversation import Conversation
from tests.bench.conversations import conversation

DELETED = ({"action": "delete", "id": 2}, {"type": "deleted", "id": 2})
REFUSED = ({"action": "delete", "id": 1}, {"type": "error", "error": "no"})


def test_the_first_request_asks_for_consent() -> None:
    assert Conversation([{"role": "user", "content": "YES or NO?"}]).asks_for_consent
    assert not conversation("one").asks_for_consent


def test_the_ledger_holds_the_unlocked_memories() -> None:
    locked = '{"id": 7, "date": "2026-03-01", "tokens": 2, "tags": ["voice"], '
    locked += '"constitutional": false, "content": "sung"}'

    shown = Conversation([{"role": "user", "content": f"{locked}\n{{broken\n"}])

    assert shown.ledger == []
    assert [entry.content for entry in conversation("one", "two").ledger] == ["one", "two"]


def test_a_deleted_memory_is_not_kept_but_one_whose_deletion_was_refused_is() -> None:
    asked = conversation("one", "two", "three", exchanges=(DELETED, REFUSED))

    assert {entry.id for entry in asked.kept} == {1, 3}
    assert {entry.id for entry in asked.untried} == {3}
    assert {entry.id for entry in asked.unchanged} == {1, 3}
    assert [call.is_refused for call in asked.calls] == [False, True]


def test_the_last_result_tells_what_is_left_and_the_prompt_before_it() -> None:
    told = (
        {"action": "search"},
        {"type": "search_results", "tokens_left": 3, "operations_left": 9},
    )

    assert conversation("one").tokens_left == 50
    assert conversation("one", exchanges=(told,)).tokens_left == 3
    assert conversation("one", exchanges=(told,)).operations_left == 9
    assert conversation("one", "two", exchanges=(DELETED,)).operations_left == 9


def test_only_what_the_allowance_covers_is_affordable() -> None:
    asked = conversation("x" * 120, "y" * 120)
    first, second = ({"action": "delete", "id": id_} for id_ in (1, 2))
    shorter = {"action": "update", "id": 2, "content": "y" * 80}

    assert asked.affordable([first, second, shorter]) == [first, shorter]
