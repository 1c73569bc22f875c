"""Benchmarks, each on a temporary database."""

import click

from refine.cli.bench.bill import bench_bill
from refine.cli.bench.imports import bench_import
from refine.cli.bench.pages import bench_pages
from refine.cli.bench.survival import bench_survival


@click.group()
def bench() -> None:
    """Run benchmarks on a temporary database."""


bench.add_command(bench_bill)
bench.add_command(bench_import)
bench.add_command(bench_pages)
bench.add_command(bench_survival)
