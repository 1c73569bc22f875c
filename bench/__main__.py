"""`make bench`: one table of what was promised about speed."""

import click

from bench import at_rest, beginnings, edits, growing, imports, sweeps, verifying
from bench.measuring import Benchmark, Broken, Figure, print_goals, run
from bench.pages import Pages
from bench.world import DEFAULT, LARGER, TINY, World, grow, seeded

_SIZES = {"default": DEFAULT, "large": DEFAULT, "tiny": TINY}


@click.command()
@click.option(
    "--size",
    type=click.Choice(list(_SIZES)),
    default="default",
    show_default=True,
    help="large: then also with ten times as many agents and records; tiny: only a try.",
)
def main(size: str) -> None:
    """Measure, print one table, and how many goals are met."""
    with seeded(_SIZES[size]) as world:
        lines = [*run_all(world, is_grown=size != "default")]
        if size != "tiny":
            lines += run(at_rest.benchmarks())
    print_goals(lines)


def run_all(world: World, *, is_grown: bool) -> list[Figure | Broken]:
    """Run every benchmark; those of pages again once the world has grown."""
    pages = Pages(world)
    areas = (edits, beginnings, verifying, imports, growing)
    lines = [*run(pages.benchmarks())]
    for area in areas:
        lines += run(area.benchmarks(world))
    if is_grown:
        agents = world.size.agents * LARGER
        lines += run([Benchmark("growth", lambda: grow(world, agents))])
        lines += run(pages.benchmarks(f", {agents:,} agents"))
    return [*lines, *run(sweeps.benchmarks(world))]  # last, as they queue sessions


if __name__ == "__main__":
    main()
