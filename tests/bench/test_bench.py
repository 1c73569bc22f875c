"""One table, and one last line that counts the goals."""

import os
import re
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from flask import Flask, current_app
from sqlalchemy import Text, bindparam, func, literal, select, text

from bench import at_rest, dashboard
from bench.__main__ import main
from bench.main_query import main_query
from bench.measuring import (
    Benchmark,
    Broken,
    Figure,
    interleaved,
    print_goals,
    run,
    statements_of,
)
from bench.pages import bench_pages
from bench.world import TINY, seeded
from refine.extensions import db
from refine.extensions.statements import PlainQuery, together
from refine.models import Agent
from tests import factories
from tests.web.test_every_route import READ

# Two spaces or more stand between the columns.
_CELLS = re.compile(r" {2,}")


def printed(capsys: pytest.CaptureFixture[str]) -> tuple[list[list[str]], str]:
    """The lines of the table, cut into cells, its head first; and the last line."""
    *lines, last = capsys.readouterr().out.splitlines()
    return [_CELLS.split(line.strip()) for line in lines], last


def test_every_benchmark_gives_figures_and_the_last_line_counts_them(
    capsys: pytest.CaptureFixture[str],
) -> None:
    main.main(["--size", "tiny"], standalone_mode=False)

    (head, *lines), last = printed(capsys)
    assert head == ["name", "ours", "floor", "ratio", "goal"]
    assert {len(line) for line in lines} == {6}
    assert [line for line in lines if line[4] == "–"] == []
    verdicts = [line[5] for line in lines]
    assert set(verdicts) <= {"met", "missed"}
    met, missed = verdicts.count("met"), verdicts.count("missed")
    assert last == f"goals: {met} met, {missed} missed"
    names = [line[0] for line in lines]
    assert len(names) == len(set(names))
    for name in ("overview", "delete, ledger of 40", "ten edits and complete, ledger of 60"):
        assert name in names
    assert "GET /agents: grown, against before" in names


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may read what processes share")
def test_the_memory_at_rest_is_that_of_all_processes(app: Flask) -> None:
    (figure,) = run(at_rest.benchmarks())

    assert isinstance(figure, Figure)
    assert figure.unit == "MB"
    assert 100 < figure.ours < 1_000


def test_pages_alone_are_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    small = ["--agents", "3", "--records", "4", "--repetitions", "1"]
    bench_pages.main(small, standalone_mode=False)

    (_head, *lines), last = printed(capsys)
    assert [line[0] for line in lines][2:4] == ["overview", "overview: queries"]
    assert re.fullmatch(r"goals: \d+ met, \d+ missed", last)


# They are not framed, not pages, or like another one.
NOT_MEASURED = {
    "/audit/export.csv",
    "/audit/export.jsonl",
    "/healthz",
    "/invitations/<secret>",
    "/metrics",
    "/profile/confirm",
    "/readyz",
    "/sign-in",
    "/static/<path:filename>",
    "/usage/export.csv",
}


def test_every_page_is_measured() -> None:
    with seeded(TINY) as world:
        routes = current_app.url_map.bind("localhost")
        paths = [urlsplit(page.path).path for page in dashboard.pages(world)]
        rules = {routes.match(path, return_rule=True)[0].rule for path in paths}

    assert rules == READ.keys() - NOT_MEASURED


def test_a_benchmark_that_fails_is_missed_and_stops_no_other(
    app: Flask, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails() -> Iterator[Figure]:
        yield Figure("its first figure", 1.0, 1.0, at_most_times=2.0)
        raise LookupError("a text that is not printed in the table")

    def works() -> Iterator[Figure]:
        yield Figure("another", 30, at_most=25, unit="queries")

    lines = list(run([Benchmark("broken", fails), Benchmark("whole", works)]))
    print_goals(lines)

    assert lines[1] == Broken("broken", "LookupError")
    (_head, *table), last = printed(capsys)
    assert table == [
        ["its first figure", "1.00 ms", "1.00 ms", "1.0 ×", "2 ×", "met"],
        ["broken", "LookupError", "–", "–", "–", "missed"],
        ["another", "30 queries", "–", "–", "25 queries", "missed"],
    ]
    assert last == "goals: 1 met, 2 missed"


@pytest.mark.parametrize(
    ("figure", "is_met"),
    [
        (Figure("ratio at its bound", 6.0, 2.0, at_most_times=3.0), True),
        (Figure("ratio above it", 6.1, 2.0, at_most_times=3.0), False),
        (Figure("figure at its bound", 25, at_most=25), True),
        (Figure("figure above it, near its floor", 26, 25.0, at_most=25), False),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_goals_include_their_bounds(figure: Figure, is_met: bool) -> None:
    assert figure.is_met is is_met


def test_ours_and_the_floor_take_turns_and_their_medians_count() -> None:
    turns: list[str] = []
    ours, floor = iter([99.0, 1.0, 50.0, 3.0]), iter([99.0, 2.0, 2.0, 90.0])

    def measured(name: str, figures: Iterator[float]) -> float:
        turns.append(name)
        return next(figures)

    medians = interleaved(3, lambda: measured("ours", ours), lambda: measured("floor", floor))

    assert medians == (3.0, 2.0)
    assert turns == ["ours", "floor"] * 4


def test_the_main_query_takes_longest_of_what_a_bare_route_does_not_send(app: Flask) -> None:
    longest, of_bare = (text(f"SELECT pg_sleep({s}), '{s} s'") for s in (0.02, 0.05))

    def bare() -> None:
        db.session.execute(of_bare)

    def ask() -> None:
        bare()
        db.session.scalar(select(Agent.id))
        db.session.execute(longest)

    assert [row[1] for row in main_query(ask, bare)()] == ["0.02 s"]


def test_a_main_query_is_carried_out_with_its_values(app: Flask) -> None:
    given = select(bindparam("given", type_=Text))

    assert main_query(lambda: db.session.execute(given, {"given": "a value"}), list)() == [
        ("a value",)
    ]


def test_the_main_query_is_found_among_those_of_one_trip(app: Flask) -> None:
    short, longest = (
        PlainQuery(select(func.pg_sleep(seconds), literal(f"{seconds} s").label("slept")))
        for seconds in (0.001, 0.02)
    )

    (row,) = main_query(lambda: together(short.rows, longest.rows), list)()
    assert row[1] == "0.02 s"


def test_what_loads_more_of_an_object_is_repeated_without_the_object(app: Flask) -> None:
    agent = factories.agent()
    db.session.commit()

    def ask() -> str:
        db.session.expire(agent, ["name"])
        return agent.name

    (row,) = main_query(ask, list)()
    assert agent.name in row


def test_what_sends_no_more_than_a_bare_route_has_no_main_query(app: Flask) -> None:
    def bare() -> None:
        db.session.scalar(select(Agent.id))

    assert main_query(bare, bare)() is None


def test_each_statement_of_a_trip_is_counted(app: Flask) -> None:
    one = PlainQuery(select(literal(1)))

    assert statements_of(lambda: together(one.rows, one.rows)) == 2


def test_statements_are_counted(app: Flask) -> None:
    def work() -> None:
        db.session.scalar(db.select(Agent.id))
        db.session.scalar(db.select(Agent.id))

    assert statements_of(work) == 2
