"""The speed of pages and API, compared with bare routes and their main query in the same run."""

import gc
from collections.abc import Iterator
from functools import partial
from typing import Any

import click
from flask import current_app

from bench import asking, dashboard
from bench.asked import Asked
from bench.dashboard import Page
from bench.main_query import main_query
from bench.measuring import (
    Benchmark,
    Figure,
    interleaved,
    p95,
    print_goals,
    run,
    statements_of,
    timed,
)
from bench.operations import FLAT_TIMES, Operations
from bench.world import DEFAULT, Size, World, seeded


class Pages:
    """The pages and operations of a world, asked again as it grows."""

    def __init__(self, world: World) -> None:
        self._world = world
        app: Any = current_app._get_current_object()  # type: ignore[attr-defined]
        self._bare_routes = asking.BareRoutes.of(app)
        self._browser = asking.signed_in(app, world.sign_in)
        self._operations = Operations(world, asking.Client(app, app.response_class))
        self._first: dict[str, float] = {}

    def benchmarks(self, suffix: str = "") -> list[Benchmark]:
        """Return a benchmark for each; from the second time on, also how flat it stayed."""
        frame = Page("frame of every page", asking.FRAME, has_main_query=False)
        pages = [page.asked(self._browser) for page in (frame, *dashboard.pages(self._world))]
        return [
            Benchmark(f"{asked.name}{suffix}", partial(self._measured, asked, suffix))
            for asked in (*pages, *self._operations.asked())
        ]

    def _measured(self, asked: Asked, suffix: str) -> Iterator[Figure]:
        asked.ask()
        with_query = asked.bare
        if asked.has_main_query:
            query = main_query(asked.ask, asked.bare)
            with_query = self._bare_routes.with_query(asked.bare, query)
        gc.freeze()  # as gunicorn does before it forks
        works = map(timed, (asked.ask, with_query, asked.bare))
        ours, floor, bare = interleaved(self._world.size.times_asked, *works, typical=p95)
        yield Figure(f"{asked.name}{suffix}", ours, floor, at_most_times=asked.at_most_times)
        if asked.at_most_queries is not None:
            queries = statements_of(asked.ask)
            named = f"{asked.name}{suffix}: queries"
            yield Figure(named, queries, at_most=asked.at_most_queries, unit="queries")
        times_bare = self._first.setdefault(asked.name, ours / bare)
        if suffix:
            # the machine may be busier by now, which slows bare routes just as much
            named = f"{asked.name}: grown, against before"
            yield Figure(named, ours, times_bare * bare, at_most_times=FLAT_TIMES)


@click.command("pages")
@click.option(
    "--agents",
    type=click.IntRange(2, 100_000),
    default=DEFAULT.agents,
    show_default=True,
    help="Number of agents.",
)
@click.option(
    "--records",
    type=click.IntRange(1, 10_000),
    default=DEFAULT.records_each,
    show_default=True,
    help="Number of audit records of each agent.",
)
@click.option(
    "--memories",
    type=click.IntRange(1, 10_000),
    default=DEFAULT.memories_each,
    show_default=True,
    help="Number of memories of each agent.",
)
@click.option(
    "--repetitions",
    type=click.IntRange(1, 1_000),
    default=DEFAULT.times_asked,
    show_default=True,
    help="Number of requests for each page.",
)
def bench_pages(agents: int, records: int, memories: int, repetitions: int) -> None:
    """Measure the response times of pages and API on a large installation.

    Prints times, numbers of queries, and which goals are met. Each time is compared with a floor: a
    bare route, which only looks up the signed-in user (or checks the token and counts the request),
    plus the page's main query, the one that takes longest. The two are measured in turns and
    compared by the 95th percentile (p95).

    \b
    Examples:
      refine bench pages
      refine bench pages --agents 100 --records 50 --repetitions 3
      refine bench pages --agents 10000 --records 500 --memories 100
    """
    expired = min(DEFAULT.expired, agents * DEFAULT.expired // DEFAULT.agents)
    size = Size(
        agents=agents,
        records_each=records,
        memories_each=memories,
        ledgers=(100, 100),
        tidied_agents=1,
        expired=expired,
        times_asked=repetitions,
    )
    with seeded(size) as world:
        print_goals(list(run(Pages(world).benchmarks())))
