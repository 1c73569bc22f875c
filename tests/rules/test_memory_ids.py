"""Memory ids as models write them: a short list of spellings, and a refusal for all else."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refine.errors import InvalidValue
from refine.rules.memory_ids import parse_ids, parse_single_id

LARGEST = 10**18 - 1

ids = st.integers(1, LARGEST)
spelled = ids.flatmap(lambda n: st.sampled_from([n, str(n), f"#{n}", f" {n} ", f"\t#{n}\n"]))
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: (
        st.lists(inner) | st.tuples(inner) | st.dictionaries(st.text() | st.integers(), inner)
    ),
)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (7, [7]),
        ("7", [7]),
        ("#7", [7]),
        (" #7 ", [7]),
        ("007", [7]),
        ("7, 9", [7, 9]),
        ("7,9", [7, 9]),
        ("#7, #9", [7, 9]),
        ([7, 9], [7, 9]),
        (["7", "#9"], [7, 9]),
        ([9, 7], [9, 7]),
        ([7, "7", "#7", 9, 7], [7, 9]),
        (LARGEST, [LARGEST]),
        (str(LARGEST), [LARGEST]),
    ],
)
def test_ids_are_read_as_models_write_them(written: Any, meant: list[int]) -> None:
    assert parse_ids(written) == meant


@pytest.mark.parametrize(
    "written",
    [
        None,
        True,
        False,
        [True],
        1.0,
        [7, 1.0],
        float("nan"),
        b"7",
        "",
        " ",
        [],
        [""],
        {},
        {"id": 7},
        {7},
        (7, 9),
        [[7, 9]],
        [["7"], 9],
        ["7, 9"],
        [None],
        0,
        -7,
        "0",
        "-7",
        "+7",
        "#0",
        "1abc",
        "abc",
        "#",
        "##7",
        "# 7",
        "7#",
        "7,,9",
        ",7",
        "7,",
        "7;9",
        "7 9",
        "7-9",
        "[7, 9]",
        "7.0",
        "1e3",
        "0x7",
        "1_000",
        "１",
        "７",
        "٧",
        "²",
        "Ⅶ",
        "#７",
        "7\x00",
        "7\n8",
        10**18,
        10**5000,
        str(10**18),
        "9" * 5_000,
        -(10**5000),
    ],
    ids=lambda written: type(written).__name__,  # pytest cannot print the largest
)
def test_everything_else_is_refused(written: Any) -> None:
    with pytest.raises(InvalidValue, match="use a number such as 7"):
        parse_ids(written)


@given(st.lists(spelled, min_size=1))
def test_a_list_gives_its_distinct_ids_in_their_order(written: list[int | str]) -> None:
    meant = [int(str(each).strip().lstrip("#")) for each in written]

    assert parse_ids(written) == list(dict.fromkeys(meant))


@given(st.lists(spelled.map(str), min_size=1))
def test_a_text_means_what_the_list_of_its_parts_means(written: list[str]) -> None:
    assert parse_ids(",".join(written)) == parse_ids(written)


@given(anything)
def test_nothing_comes_back_but_ids_that_the_database_can_hold(written: Any) -> None:
    try:
        parsed = parse_ids(written)
    except InvalidValue:
        return

    assert parsed
    assert all(type(each) is int and 1 <= each <= LARGEST for each in parsed)


def test_the_refusal_does_not_repeat_what_was_given() -> None:
    with pytest.raises(InvalidValue) as refusal:
        parse_ids(["7", "canary"])

    assert "canary" not in str(refusal.value)


@pytest.mark.parametrize("written", [7, "7", "#7", [7], ["#7"], "7, 7"])
def test_a_single_id_is_read_from_every_spelling_that_names_one(written: Any) -> None:
    assert parse_single_id(written) == 7


@pytest.mark.parametrize("written", ["7, 9", [7, 9]])
def test_several_ids_are_refused_where_one_is_wanted(written: Any) -> None:
    with pytest.raises(InvalidValue, match="one memory a call"):
        parse_single_id(written)


@pytest.mark.parametrize("written", [True, 7.0, "7abc", [], None])
def test_what_is_no_id_is_none_where_one_is_wanted(written: Any) -> None:
    with pytest.raises(InvalidValue, match="use a number such as 7"):
        parse_single_id(written)


def test_more_ids_than_anyone_merges_are_refused() -> None:
    assert len(parse_ids(list(range(1, 1_001)))) == 1_000
    with pytest.raises(InvalidValue, match="too many"):
        parse_ids(list(range(1, 1_002)))
