"""The background processes: worker and clock."""

from dataclasses import asdict

import click

from refine.cli.context import application
from refine.cli.output import console
from refine.jobs.clock import run_clock
from refine.jobs.tick import run_tick
from refine.jobs.worker import work
from refine.rules.quantities import plural


@click.command()
@click.option("--burst", is_flag=True, help="Exit when the queues are empty.")
def worker(burst: bool) -> None:
    """Run queued sessions, reflections, conversations and access requests, until SIGTERM.

    Up to REFINE_CONCURRENCY at the same time. Requested sessions take precedence over automatic
    ones. Start several workers to use several processors.
    """
    with application("worker", is_service=True):
        work(burst=burst)


@click.command()
def clock() -> None:
    """Run one tick now and one every minute, until SIGTERM.

    A tick queues all sessions that are due (weekly slots, agents over budget, retries), hands
    queued sessions to the workers and ends sessions whose worker was lost. A second clock does no
    harm.
    """
    with application("clock", is_service=True):
        run_clock()


@click.command()
def tick() -> int:
    """Run one tick here and now, and print what it did.

    The clock does this every minute. Extra, late or concurrent ticks do no harm.
    """
    with application("tick"):
        done = run_tick()
        summary = ", ".join(_in_words(name, count) for name, count in asdict(done).items() if count)
        console.print(f"tick: {summary or 'nothing was due'}")
        return 1 if done.faults else 0


def _in_words(name: str, count: int) -> str:
    noun = name.removesuffix("s")
    return plural(count, noun) if name in ("faults", "reflections") else f"{count} {name}"
