"""LangGraph's store with Refine behind it, through LangGraph's own base class."""

import pytest

from refine_client import RefineError
from refine_client.langgraph_store import RefineStore
from tests.client.asynchronous import run
from tests.client.conftest import KEPT, Home

BO = ("users", "bo")


@pytest.fixture
def store(home: Home) -> RefineStore:
    return RefineStore(home.refine)


def test_a_day_of_an_agent_with_the_store(home, store):
    store.put(BO, "food", {"content": "Bo likes rye bread"})
    store.put(BO, "food", {"content": "Bo likes oat bread"})
    seen = store.get(BO, "food")
    written = home.memories[-1]
    home.lock(written.id)
    with pytest.raises(RefineError, match=f"Cannot correct constitutional memory #{written.id}"):
        store.put(BO, "food", {"content": "Bo likes no bread"})
    key = home.memories[0].id
    store.delete(("unnamed",), str(key))
    gone = store.get(("unnamed",), str(key))
    home.restore(key)

    assert (seen.namespace, seen.key, seen.value) == (BO, "food", {"content": "Bo likes oat bread"})
    assert seen.updated_at == written.recorded_at
    assert written.content == "[users/bo/food] Bo likes oat bread"
    assert gone is None
    assert store.get(("unnamed",), str(key)).value == {"content": KEPT[0]}
    assert home.told == [
        *("memory_saved", "memory_corrected", "memory_constitutional_toggle"),
        *("memory_forgotten", "memory_restored"),
    ]


def test_the_same_value_again_changes_nothing(home, store):
    for _ in range(2):
        store.put(BO, "food", {"content": "Bo likes rye bread"})

    assert home.told == ["memory_saved"]


@pytest.mark.parametrize(
    "value",
    [
        {"content": "Likes tea"},
        {"content": '{"is": "no object"}'},
        {"content": "Likes tea", "n": 3},
        {"theme": "dark", "list": [1, None, {"a": "é"}]},
        {},
    ],
    ids=str,
)
def test_a_value_comes_back_as_it_was(store, value):
    store.put(BO, "preferences", value)

    assert store.get(BO, "preferences").value == value


@pytest.mark.parametrize("key", ["a/b", "[1]", "100%", "a%2Fb", "two words", "one\nline"])
def test_any_key_and_namespace_is_found_again(store, key):
    store.put(("of a/b", key), key, {"content": "Likes tea"})

    assert store.get(("of a/b", key), key).key == key
    (found,) = store.search(("of a/b",))
    assert (found.namespace, found.key) == (("of a/b", key), key)


def test_a_search_ranks_by_shared_words_below_a_namespace(store):
    store.put(BO, "food", {"content": "Bo likes rye bread"})
    store.put(BO, "hobby", {"content": "Bo knits"})
    store.put(("users", "ada"), "food", {"content": "Ada likes bread"})

    found = store.search(BO, query="Which bread does Bo like?")
    first = store.search(BO, query="Which bread does Bo like?", limit=1)
    second = store.search(("users",), query="bread", limit=1, offset=1)

    assert [item.key for item in found] == ["food", "hobby"]
    assert found[0].score > found[1].score
    assert [item.key for item in first] == ["food"]
    assert [item.namespace for item in second] == [BO]


@pytest.mark.parametrize(
    ("wanted", "keys"),
    [
        ({"kind": "a"}, ["one"]),
        ({"n": {"$gt": 1}}, ["two"]),
        ({"n": {"$gte": 1, "$lt": 2}}, ["one"]),
        ({"kind": {"$ne": "a"}}, ["three", "two"]),
        ({"n": {"$eq": 2}, "kind": "b"}, ["two"]),
        ({"n": {"$lte": 1}}, ["one"]),
    ],
    ids=str,
)
def test_a_search_filters_by_values(store, wanted, keys):
    store.put(BO, "one", {"kind": "a", "n": 1})
    store.put(BO, "two", {"kind": "b", "n": 2})
    store.put(BO, "three", {"kind": "b"})

    assert [item.key for item in store.search(BO, filter=wanted)] == keys


def test_an_unknown_operator_is_named(store):
    store.put(BO, "one", {"n": 1})

    with pytest.raises(ValueError, match=r"unknown operator \$in"):
        store.search(BO, filter={"n": {"$in": [1]}})


@pytest.mark.parametrize(
    ("wanted", "spaces"),
    [
        ({"prefix": ("users",)}, [("users", "ada", "work"), BO]),
        ({"prefix": ("users", "*", "work")}, [("users", "ada", "work")]),
        ({"suffix": ("bo",)}, [BO]),
        ({"max_depth": 1}, [("unnamed",), ("users",)]),
        ({"prefix": ("users",), "offset": 1, "limit": 1}, [BO]),
    ],
    ids=str,
)
def test_namespaces_are_listed(store, wanted, spaces):
    store.put(BO, "food", {"content": "Bo likes rye bread"})
    store.put(("users", "ada", "work"), "where", {"content": "Ada works in Oslo"})

    assert store.list_namespaces(**wanted) == spaces


def test_the_same_is_done_asynchronously(store):
    async def day() -> object:
        await store.aput(BO, "food", {"content": "Bo likes rye bread"})
        found = await store.aget(BO, "food")
        await store.adelete(BO, "food")
        assert await store.aget(BO, "food") is None
        return found and found.value

    assert run(day()) == {"content": "Bo likes rye bread"}
