"""Memory ids as models write them: a few spellings, and a refusal for everything else."""

from typing import Any

from hypothesis import given, strategies as st

from refine.tools.refinement import parse_ids, parse_single_id
from tests.rules.refusing import cases, not_refused

LARGEST = 10**18 - 1
EXPECTED = "use a number such as 7"

ids = st.integers(1, LARGEST)
spellings = ids.flatmap(lambda n: st.sampled_from([n, str(n), f"#{n}", f" {n} ", f"\t#{n}\n"]))


def test_reads_ids_as_models_write_them() -> None:
    seven = [7, "7", "#7", " #7 ", "007", [7], [7, "7", "#7"]]
    seven_and_nine = [
        *("7, 9", "7,9", "#7, #9", [7, 9], ["7", "#9"], [7, "7", "#7", 9, 7]),
        *("[7, 9]", " [7,9]\n", '["7", "#9"]', "[7, 7, 9]"),
    ]

    assert [written for written in seven if parse_ids(written) != [7]] == []
    assert [written for written in seven_and_nine if parse_ids(written) != [7, 9]] == []
    assert parse_ids([9, 7]) == [9, 7]
    assert parse_ids(LARGEST) == parse_ids(str(LARGEST)) == [LARGEST]


def test_refuses_everything_else() -> None:
    others: list[Any] = [
        *(None, True, False, [True], 1.0, [7, 1.0], float("nan"), b"7", [], [""], {}, {"id": 7}),
        *(
            {7},
            (7, 9),
            [[7, 9]],
            [["7"], 9],
            ["7, 9"],
            [None],
            0,
            -7,
            10**18,
            10**5000,
            -(10**5000),
        ),
        *cases("|-7|+7|0|#0|1abc|abc|#|##7|# 7|7#|7,,9|,7|7,|7;9|7 9|7-9|7.0|1e3|0x7"),
        *cases("[7 9]|[7, 9|7, 9]|[]|[7,]|[7.0]|[true]|[[7, 9]]|[#7]|(7, 9)|['7']|[7, null]"),
        *cases("1_000|１|７|٧|²|Ⅶ|#７|7\x00|7\n8"),
        *(" ", str(10**18), "9" * 5_000, ["7", "canary"]),
    ]

    assert not_refused(parse_ids, others, EXPECTED) == []
    assert not_refused(parse_single_id, [True, 7.0, "7abc", [], None], EXPECTED) == []


@given(st.lists(spellings, min_size=1))
def test_returns_distinct_ids_in_their_order(written: list[int | str]) -> None:
    expected = [int(str(each).strip().lstrip("#")) for each in written]

    assert parse_ids(written) == list(dict.fromkeys(expected))
    assert parse_ids(",".join(map(str, written))) == parse_ids(list(map(str, written)))


def test_a_single_id_is_exactly_one() -> None:
    one = [7, "7", "#7", [7], ["#7"], "7, 7"]

    assert [written for written in one if parse_single_id(written) != 7] == []
    assert not_refused(parse_single_id, ["7, 9", [7, 9]], "id takes a single memory id") == []


def test_refuses_more_than_a_thousand_ids() -> None:
    assert len(parse_ids(list(range(1, 1_001)))) == 1_000
    assert not_refused(parse_ids, [list(range(1, 1_002))], "too many") == []
    assert len(parse_ids(str(list(range(LARGEST, LARGEST - 1_000, -1))))) == 1_000
