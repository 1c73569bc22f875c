"""Reflection by hand."""

import signal

import click

from refine import settings
from refine.cli.context import application
from refine.cli.output import console
from refine.jobs import stopping
from refine.models import Agent, MemoryTask
from refine.remembering.running import remember


@click.command()
@click.argument("agent_reference", metavar="AGENT")
def reflect(agent_reference: str) -> None:
    """Have AGENT (id or name) reflect on its journal of the last week now.

    It may promote entries to core memories. Works even if the agent has not turned on daily
    reflection. Prints figures, never memory content. Exit code 1 only if the reflection failed.
    """
    with application("reflect"):
        agent = Agent.named(agent_reference)
        with stopping.handle_stop_signals(signal.SIGINT, signal.SIGTERM):
            # committed only when it is claimed, so that no worker takes it
            task = MemoryTask.reflect(agent, "cli")
            ended = remember(task.id, settings.current(), is_stopping=stopping.stop_requested)
            was_stopped = stopping.stop_requested()
        if ended is None:
            waiting = "another task of this agent is running; a worker will run the reflection"
            console.print("stopped before it began; nothing was asked" if was_stopped else waiting)
            return
        if task.status == "failed":
            raise click.ClickException(f"the reflection failed: {task.end_reason}")
        reason = f" ({task.end_reason})" if task.end_reason else ""
        console.print(
            f"{agent.name} (agent {agent.id}): reflection {task.status}{reason}, "
            f"{task.memories_kept} promoted; {task.llm_calls} calls, {task.prompt_tokens:,} prompt "
            f"tokens, {task.completion_tokens:,} completion tokens, ${task.cost_usd:.4f}"
        )
