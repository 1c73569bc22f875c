"""Sessions, reflections and ticks: run here, or by the background processes."""

import signal
from dataclasses import asdict

import click
from rich.markup import escape

from refine import settings, stopping, telemetry
from refine.cli.context import InApplication, application
from refine.cli.output import Field, console, print_list
from refine.cli.parameters import agent_argument, json_option
from refine.jobs.clock import run_clock
from refine.jobs.queue import refine_later
from refine.jobs.tick import run_tick, sweep_all
from refine.jobs.worker import work
from refine.llm.provider import is_rehearsed
from refine.models import MAX_MUTATIONS, Agent, MemoryTask, RefinementSession
from refine.refinement.loop import SessionEvent, refine
from refine.remembering.task_worker import run_task
from refine.rules.quantities import cost_in_words, plural

_NOT_ASKED = "stopped before it began; the agent was not asked"


@click.command(cls=InApplication)
@agent_argument
@click.option("--enqueue", is_flag=True, help="Let a worker run it instead of running it here.")
def run(reference: str, enqueue: bool) -> None:
    """Let AGENT (id or name) tidy its memory now, and show each step.

    The agent is asked for consent first. Works for paused agents too. Prints figures and outcomes,
    never memory content. Exit code 1 only if the session failed.
    """
    agent = Agent.named(reference)
    if enqueue:
        session = refine_later(agent, "cli")
        console.print(f"queued session {session.id} for {agent.name}; a worker will run it")
    else:
        _run_here(agent)


_SWEPT = (
    Field("account", "account", "account.slug"),
    Field("outcome", "outcome"),
    Field("agents", "agents"),
)


@click.command(cls=InApplication)
@json_option
def sweep(as_json: bool) -> None:
    """Queue a session for every agent that needs one.

    Workers run the sessions. Agents that have just declined are included. Shows how many agents of
    each account are asked, and how many are skipped, and why.
    """
    print_list(sweep_all(), _SWEPT, as_json=as_json, empty="no agents")


@click.command(cls=InApplication)
@agent_argument
def reflect(reference: str) -> None:
    """Let AGENT (id or name) reflect on its journal of the last week now.

    It may promote entries to core memories. Works even if the agent has not turned on daily
    reflection. Prints figures, never memory content. Exit code 1 only if the reflection failed.
    """
    agent = Agent.named(reference)
    with stopping.handle_stop_signals(signal.SIGINT, signal.SIGTERM):
        # committed only when it is claimed, so that no worker takes it
        task = MemoryTask.reflect(agent, "cli")
        ended = run_task(task.id, settings.current(), is_stopping=stopping.stop_requested)
        was_stopped = stopping.stop_requested()
    if ended is None:
        waiting = "another task of this agent is running; a worker will run the reflection"
        console.print(_NOT_ASKED if was_stopped else waiting)
        return
    if task.status == "failed":
        raise click.ClickException(f"the reflection failed: {task.end_reason}")
    reason = f" ({task.end_reason})" if task.end_reason else ""
    console.print(
        f"{agent.name} (agent {agent.id}): reflection {task.status}{reason}, "
        f"{task.memories_kept} promoted; {_calls(task)}"
    )


def _run_here(agent: Agent) -> None:
    # before anything is queued, so that a signal ends the session properly
    with stopping.handle_stop_signals(signal.SIGINT, signal.SIGTERM):
        # committed only when it is claimed, so that no worker takes it
        session = RefinementSession.queue(agent, "cli")
        _introduce(agent, session)
        with console.status("refining"):
            ended = refine(
                session.id,
                settings.current(),
                observe=_show,
                is_stopping=stopping.stop_requested,
                by_hand=True,
            )
    if ended is None:
        console.print(_NOT_ASKED)
    elif ended.status == "failed":
        raise click.ClickException(f"the session failed: {ended.end_reason}")


def _introduce(agent: Agent, session: RefinementSession) -> None:
    count, mass = agent.ledger.core_totals()
    now = settings.current()
    is_rehearsal = is_rehearsed(agent.model_id, now, is_demo=agent.account.is_demo)
    answering = "the rehearsal model" if is_rehearsal else now.openrouter_base_url
    console.print(
        f"[bold]{escape(agent.name)}[/] (agent {agent.id}), model {escape(agent.model_id)}, "
        f"answered by {answering}:\n"
        f"{count} core memories, {mass:,} tokens, budget {agent.core_token_budget:,}\n"
        f"session {session.id} (Ctrl-C ends it after the current step)",
        markup=True,
    )


def _show(event: SessionEvent) -> None:
    session, facts = event.session, event.facts
    match event.kind:
        case "duplicates":
            _line("exact duplicates", f"{facts['removed']} removed")
        case "snapshot":
            batch = f", {facts['shown_memories']} of them shown" if facts["is_batch"] else ""
            _line(
                "ledger",
                f"{session.memories_before} memories{batch}, {session.mass_before:,} tokens; "
                f"at most {session.removable_tokens:,} may be removed",
            )
            if session.part_shown is not None:
                _line("warning", f"[yellow]{session.part_shown}[/]")
        case "consent":
            _line("consent", "yes" if facts["agreed"] else "no")
        case "second_reading":
            _line("second reading", f"of {plural(facts['cases'], 'edit')}")
        case "tool_call":
            result = facts["result"]
            told = "refused" if result == "error" else result.replace("_", " ")
            left = (
                f"{session.tokens_left:,} tokens left to remove, "
                f"{session.mutation_count} of {MAX_MUTATIONS} changes"
            )
            _line(facts["action"], f"{told:<20} {left}")
        case "ended":
            _show_end(session)


def _show_end(session: RefinementSession) -> None:
    colour = {"completed": "green", "failed": "red", "rolled_back": "red"}.get(
        session.status, "yellow"
    )
    reason = "" if session.status == "completed" else f": {escape(session.end_reason or '')}"
    _line("outcome", f"[{colour}]{session.status}[/]{reason}")
    if session.memories_before is not None:
        _line("", session.summary_line().removeprefix("Refinement session: "))
    if session.llm_calls:
        _line("model", _calls(session))


def _calls(run: RefinementSession | MemoryTask) -> str:
    return (
        f"{plural(run.llm_calls, 'call')}, {run.prompt_tokens:,} prompt tokens "
        f"({run.cached_tokens:,} cached), {run.completion_tokens:,} completion tokens, "
        f"cost {cost_in_words(run.cost_usd, run.unpriced_calls)}"
    )


def _line(label: str, text: str) -> None:
    console.print(f"  {label:<17} {text}", markup=True)


@click.command()
@click.option("--burst", is_flag=True, help="Exit when the queues are empty.")
def worker(burst: bool) -> None:
    """Run queued sessions, reflections, conversations and access requests, until SIGTERM.

    Up to REFINE_CONCURRENCY at the same time. Requested sessions take precedence over automatic
    ones. Start several workers to use several processors.
    """
    with (
        application("worker", is_service=True),
        telemetry.exporting(settings.current().otel_exporter_otlp_endpoint, "worker"),
    ):
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


@click.command(cls=InApplication)
def tick() -> int:
    """Run one tick here and now, and print what it did.

    The clock does this every minute. Extra, late or concurrent ticks do no harm.
    """
    done = run_tick()
    counts = [f"{count} {name}" for name, count in asdict(done).items() if count]
    console.print(f"tick: {', '.join(counts) or 'nothing was due'}")
    return 1 if done.faults else 0
