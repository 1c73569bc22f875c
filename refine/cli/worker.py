"""The worker process."""

import click

from refine.cli.context import application
from refine.jobs.worker import work


@click.command()
@click.option("--burst", is_flag=True, help="Work until the queue is empty, then end.")
def worker(burst: bool) -> None:
    """Run queued sessions, one at a time, until asked to end (SIGTERM)."""
    with application("worker"):
        work(burst=burst)
