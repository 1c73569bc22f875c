"""The processes that work by themselves: worker and clock."""

from dataclasses import asdict

import click

from refine.cli.context import application
from refine.cli.output import console
from refine.jobs.clock import run_clock
from refine.jobs.tick import run_tick
from refine.jobs.worker import work


@click.command()
@click.option("--burst", is_flag=True, help="Work until the queues are empty, then end.")
def worker(burst: bool) -> None:
    """Run queued sessions, one at a time, until asked to end (SIGTERM).

    What somebody asked for comes before what the clock queued. Start several for several at once.
    """
    with application("worker", is_service=True):
        work(burst=burst)


@click.command()
def clock() -> None:
    """Keep time until asked to end (SIGTERM): a tick at once, and one every minute.

    A tick queues what is due (weekly slots, agents over their budget, what failed), hands queued
    sessions to the workers and ends those whose worker was lost. A second clock does no harm.
    """
    with application("clock", is_service=True):
        run_clock()


@click.command()
def tick() -> int:
    """Run one tick, here and now, and say what it did.

    The clock does this every minute. Any number of ticks, late or at once, do nothing twice.
    """
    with application("tick"):
        done = run_tick()
        said = ", ".join(f"{count} {name}" for name, count in asdict(done).items() if count)
        console.print(f"tick: {said or 'nothing was due'}")
        return 1 if done.faults else 0
