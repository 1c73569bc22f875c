"""How many statements it takes to queue sessions for more agents."""

from collections.abc import Callable, Iterator

from flask import current_app

from bench import asking
from bench.measuring import Benchmark, Figure, statements_of
from bench.world import World, add_agent, texts
from refine import clock
from refine.extensions import db
from refine.jobs.tick import BUDGET_CHECK_EVERY, run_tick
from refine.models import Account

# So few that the ledger of two memories exceeds it.
_BUDGET_TOKENS = 10
_GROWN = "times the statements"


def benchmarks(world: World) -> list[Benchmark]:
    """Return those of *Run now* and the hourly budget check."""
    return [
        Benchmark("budget check", lambda: _grown(world, "budget check", _checked(world))),
        Benchmark("Run now", lambda: _grown(world, "Run now", _run_now(world))),
    ]


def _grown(world: World, name: str, statements: Callable[[int], int]) -> Iterator[Figure]:
    few, many = world.size.swept
    floor, ours = statements(few), statements(many)
    named = f"{name}, {many} agents instead of {few}"
    yield Figure(named, ours, floor, at_most_times=1.0, unit="statements")


def _checked(world: World) -> Callable[[int], int]:
    began = clock.now()

    def statements(count: int) -> int:
        _account_over_budget(f"Checked {count}", count)
        at = began + 2 * BUDGET_CHECK_EVERY * (1 + world.size.swept.index(count))
        return statements_of(lambda: run_tick(at))

    run_tick(clock.now())
    return statements


def _run_now(world: World) -> Callable[[int], int]:
    app = current_app._get_current_object()  # type: ignore[attr-defined]
    browser, token = asking.signed_in(app, world.sign_in), asking.form_token(app)

    def statements(count: int) -> int:
        slug = _account_over_budget(f"Swept {count}", count)
        return statements_of(lambda: browser.submit(f"/schedule/run?account={slug}", token))

    return statements


def _account_over_budget(name: str, agents: int) -> str:
    """Add an account with so many agents over their budget; return its slug."""
    account = Account.create(name)
    account_id, slug = account.id, account.slug
    db.session.commit()
    for _ in range(agents):
        add_agent(account_id, texts(2), core_token_budget=_BUDGET_TOKENS)
    return slug
