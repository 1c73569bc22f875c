"""The commands of this package, added to ``refine``."""

import click

from bench.bill import bench_bill
from bench.evaluation import evaluate_model
from bench.imports import bench_import
from bench.meaning_command import bench_meaning
from bench.pages import bench_pages
from bench.survival_command import bench_survival


@click.group()
def bench() -> None:
    """Run benchmarks on a temporary database."""


bench.add_command(bench_bill)
bench.add_command(bench_import)
bench.add_command(bench_meaning)
bench.add_command(bench_pages)
bench.add_command(bench_survival)

COMMANDS = {"bench": bench, "evaluate": evaluate_model}
