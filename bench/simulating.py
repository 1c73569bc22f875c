"""Simulations of several models, one after another or in processes of their own."""

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from multiprocessing import get_context
from pathlib import Path
from queue import Empty, Queue

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from bench.playing import serving
from bench.survival import Scale, Week, simulate
from bench.temporary import settings_for, temporary_database, temporary_folder
from refine.cli.context import in_context

_POLL_SECONDS = 0.5


def all_weeks(models: Sequence[str], scale: Scale, jobs: int) -> Iterator[Week]:
    """Yield the weeks of all models, from as many processes as there are jobs."""
    with temporary_folder() as folder, serving() as url:
        settings = settings_for(folder, **_provider(url))
        with temporary_database(settings, durable=False):
            if jobs > 1:
                yield from _in_processes(models, scale, jobs, folder)
                return
            for model in models:
                yield from simulate(model, scale, settings)


def _in_processes(models: Sequence[str], scale: Scale, jobs: int, folder: Path) -> Iterator[Week]:
    context = get_context("spawn")
    with context.Manager() as manager, ProcessPoolExecutor(jobs, mp_context=context) as pool:
        weeks = manager.Queue()
        lives = [pool.submit(_live, model, scale, folder, weeks) for model in models]
        try:
            while not (all(life.done() for life in lives) and weeks.empty()):
                with suppress(Empty):
                    yield weeks.get(timeout=_POLL_SECONDS)
            for life in lives:
                life.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _live(model: str, scale: Scale, folder: Path, weeks: Queue[Week]) -> None:
    """Simulate one model in a process of its own, on the database of the parent's."""
    with serving() as url:
        settings = settings_for(folder, **_provider(url))
        with in_context(settings):
            for week in simulate(model, scale, settings):
                weeks.put(week)


def _provider(url: str) -> dict[str, str]:
    return {"OPENROUTER_API_KEY": "trials", "OPENROUTER_BASE_URL": url}


def shown(weeks: Iterable[Week], total: int) -> Iterator[Week]:
    """Pass the weeks on, and show on a terminal how far they are."""
    screen = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal) as bar:
        task = bar.add_task("starting", total=total)
        for week in weeks:
            bar.update(task, advance=1, description=f"{week.model}, week {week.week}")
            yield week
