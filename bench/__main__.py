"""`make bench`: one table of the goals for speed and memory."""

import click

from bench import edits, imports, memory, starts, verifying
from bench.measuring import print_goals, run
from bench.pages import all_pages
from bench.world import DEFAULT, TINY, seeded

_SIZES = {"default": DEFAULT, "large": DEFAULT, "tiny": TINY}


@click.command()
@click.option(
    "--size",
    type=click.Choice(list(_SIZES)),
    default="default",
    show_default=True,
    help="large: pages also with ten times as many agents and records; tiny: only a try.",
)
def main(size: str) -> None:
    """Measure, print one table, and how many goals are met."""
    with seeded(_SIZES[size]) as world:
        benchmarks = [
            *edits.benchmarks(world),
            *starts.benchmarks(world),
            *verifying.benchmarks(world),
            *imports.benchmarks(world, is_large=size == "large"),
            *(memory.benchmarks(world) if size != "tiny" else ()),
            *all_pages(world, is_grown=size != "default"),
        ]
        print_goals(list(run(benchmarks)))


if __name__ == "__main__":
    main()
