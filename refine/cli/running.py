"""Sessions and reflections: run here, or queued for the workers."""

import signal

import click
from rich.markup import escape
from rich.status import Status

from refine import settings
from refine.cli.context import application
from refine.cli.output import console, print_list
from refine.cli.parameters import agent_argument, json_option
from refine.jobs import runs, stopping
from refine.jobs.tick import sweep_all
from refine.llm.clients import is_rehearsed
from refine.models import MAX_MUTATIONS, Agent, MemoryTask, RefinementSession
from refine.refinement.loop import Event, refine
from refine.remembering.task_worker import run_task
from refine.rules.quantities import cost_in_words, plural


@click.command()
@agent_argument
@click.option("--enqueue", is_flag=True, help="Let a worker run it instead of running it here.")
def run(reference: str, enqueue: bool) -> int:
    """Let AGENT (id or name) tidy its memory now, and show each step.

    The agent is asked for consent first. Works for paused agents too. Prints figures and outcomes,
    never memory content. Exit code 1 only if the session failed.
    """
    with application("run"):
        agent = Agent.named(reference)
        if enqueue:
            session = runs.refine_later(agent, "cli")
            console.print(queued_in_words(session))
            return 0
        return _run_here(agent)


def queued_in_words(session: RefinementSession) -> str:
    """Return that a session is queued."""
    return f"queued session {session.id} for {session.agent.name}; a worker will run it"


_SWEPT = {"account": "account", "outcome": "outcome", "agents": "agents"}


@click.command()
@json_option
def sweep(as_json: bool) -> None:
    """Queue a session for every agent that needs one.

    Workers run the sessions. Agents that have just declined are included. Shows how many agents of
    each account are asked, and how many are skipped, and why.
    """
    with application("sweep"):
        rows = [{**each._asdict(), "account": each.account.slug} for each in sweep_all()]
        print_list(rows, _SWEPT, as_json=as_json, empty="no agents")


@click.command()
@agent_argument
def reflect(reference: str) -> None:
    """Let AGENT (id or name) reflect on its journal of the last week now.

    It may promote entries to core memories. Works even if the agent has not turned on daily
    reflection. Prints figures, never memory content. Exit code 1 only if the reflection failed.
    """
    with application("reflect"):
        agent = Agent.named(reference)
        with stopping.handle_stop_signals(signal.SIGINT, signal.SIGTERM):
            # committed only when it is claimed, so that no worker takes it
            task = MemoryTask.reflect(agent, "cli")
            ended = run_task(task.id, settings.current(), is_stopping=stopping.stop_requested)
            was_stopped = stopping.stop_requested()
        if ended is None:
            waiting = (
                "another task of this agent is running; a worker will run the reflection later"
            )
            console.print(
                "stopped before it began; the agent was not asked" if was_stopped else waiting
            )
            return
        if task.status == "failed":
            raise click.ClickException(f"the reflection failed: {task.end_reason}")
        reason = f" ({task.end_reason})" if task.end_reason else ""
        console.print(
            f"{agent.name} (agent {agent.id}): reflection {task.status}{reason}, "
            f"{task.memories_kept} promoted; {task.llm_calls} calls, {task.prompt_tokens:,} prompt "
            f"tokens, {task.completion_tokens:,} completion tokens, "
            f"cost {cost_in_words(task.cost_usd, task.unpriced_calls)}"
        )


def _run_here(agent: Agent) -> int:
    # before anything is queued, so that a signal ends the session properly
    with stopping.handle_stop_signals(signal.SIGINT, signal.SIGTERM):
        # committed only when it is claimed, so that no worker takes it
        session = RefinementSession.queue(agent, "cli")
        _introduce(agent, session)
        with console.status("starting") as status:
            ended = refine(
                session.id,
                settings.current(),
                observe=_Progress(status),
                is_stopping=stopping.stop_requested,
                by_hand=True,
            )
    if ended is None:
        console.print("stopped before it began; the agent was not asked")
        return 0
    if ended.status == "failed":
        raise click.ClickException(f"the session failed: {ended.end_reason}")
    return 0


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


class _Progress:
    """Prints each step of a session with its effect."""

    def __init__(self, status: Status) -> None:
        self._status = status
        self._removed_tokens = 0

    def __call__(self, event: Event) -> None:
        session, facts = event.session, event.facts
        match event.kind:
            case "duplicates":
                self._line("exact duplicates", f"{facts['removed']} removed")
            case "snapshot":
                batch = f", {facts['shown_memories']} of them shown" if facts["is_batch"] else ""
                self._line(
                    "ledger",
                    f"{session.memories_before} memories{batch}, {session.mass_before:,} tokens; "
                    f"at most {session.removable_tokens:,} may be removed",
                )
                if session.part_shown is not None:
                    self._line("warning", f"[yellow]{session.part_shown}[/]")
                self._status.update("asking for consent")
            case "consent":
                self._line("consent", "yes" if facts["agreed"] else "no")
                self._status.update("asking the model")
            case "tool_call":
                self._tool_call(session, facts["action"], facts["result"])
            case "ended":
                self._ended(session)

    def _tool_call(self, session: RefinementSession, action: str, result: str) -> None:
        figures = ""
        if result in ("consolidated", "updated", "deleted"):
            effect = session.removed_tokens - self._removed_tokens
            figures = (
                f"{-effect:+,} tokens; {session.tokens_left:,} left to remove, "
                f"{session.mutation_count} of {MAX_MUTATIONS} changes"
            )
        self._removed_tokens = session.removed_tokens
        told = "refused" if result == "error" else result.replace("_", " ")
        self._line(action, f"{told:<20} {figures}".rstrip())

    def _ended(self, session: RefinementSession) -> None:
        colour = {"completed": "green", "failed": "red", "rolled_back": "red"}.get(
            session.status, "yellow"
        )
        reason = "" if session.status == "completed" else f": {escape(session.end_reason or '')}"
        self._line("outcome", f"[{colour}]{session.status}[/]{reason}")
        if session.memories_before is not None:
            self._line("", session.summary_line().removeprefix("Refinement session: "))
        if session.llm_calls:
            self._line(
                "model",
                f"{plural(session.llm_calls, 'call')}, {session.prompt_tokens:,} prompt tokens "
                f"({session.cached_tokens:,} cached), {session.completion_tokens:,} completion "
                f"tokens, cost {cost_in_words(session.cost_usd, session.unpriced_calls)}",
            )

    @staticmethod
    def _line(label: str, text: str) -> None:
        console.print(f"  {label:<17} {text}", markup=True)
