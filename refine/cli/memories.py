"""Memories on the server's command line, unread: erased one by one, or for a person who asks."""

import sys
import uuid

import click
from sqlalchemy import select

from refine import clock
from refine.cli.context import Group
from refine.cli.output import console
from refine.cli.parameters import agent_argument
from refine.errors import NotFound
from refine.extensions import db
from refine.models import Agent, AgentMemory, AuditLog, MemoryTask
from refine.models.erasing import asked_for_persons, erase


@click.group(cls=Group)
def memory() -> None:
    """Erase memories for good."""


@memory.command("erase")
@click.argument("memory_id", metavar="ID", type=int)
@click.option("--with-descendants", is_flag=True, help="Also erase what was made of it.")
def memory_erase(memory_id: int, with_descendants: bool) -> str:
    """Erase the memory ID for good, with what it was made of or replaced, and its copies.

    Asked for twice: the second time at least a day after the first. The agent is told each time.
    """
    found = db.session.get(AgentMemory, memory_id)
    if found is None:
        raise NotFound(f"there is no memory {memory_id}")
    agent = db.session.get_one(Agent, found.agent_id)
    done = erase(agent, memory_id, "command line", with_descendants=with_descendants)
    named = ", ".join(f"#{id_}" for id_ in done.ids)
    said = f"erased for good from {agent.name}: {named}"
    if done.from_at is not None:
        said = (
            f"to be erased from {agent.name}: {named}; repeat this from "
            f"{done.from_at:%Y-%m-%d %H:%M} UTC on to confirm it"
        )
    left = ", ".join(f"#{id_}" for id_ in done.descendants)
    return f"{said}\nmade of these, and staying: {left} (--with-descendants)" if left else said


@memory.command("erase-about")
@agent_argument
def memory_erase_about(reference: str) -> str:
    """Have AGENT search all that it keeps for a person, and erase what is about them; print an id.

    Who it is stands in standard input, up to 500 characters: names, addresses, what tells them
    from others. The agent is asked for its consent first; a day later the clock erases what it
    found.
    """
    return str(MemoryTask.search_for(Agent.named(reference), sys.stdin.read()).id)


@memory.command("receipt")
@click.argument("task_id", metavar="REQUEST", type=click.UUID)
@click.option("--figures", is_flag=True, help="Also what still waits, which is not for others.")
def memory_receipt(task_id: uuid.UUID, figures: bool) -> None:
    """Print what may be told to whoever asked: the same, whether or not anything was found."""
    task = db.session.get(MemoryTask, task_id)
    if task is None or task.kind != "data_subject":
        raise NotFound(f"there is no request {task_id}")
    agent, at = task.agent, f"{task.created_at:%Y-%m-%d %H:%M} UTC"
    console.print(f"request {task.id} of {at} to {agent.name} (agent {agent.id})")
    if task.status != "completed":
        console.print(f"{task.status}: {task.end_reason or 'not searched yet'}")
        return
    mine = AuditLog.agent_id == agent.id, AuditLog.auditable_id == str(task.id)
    record = db.session.scalars(select(AuditLog).where(*mine).order_by(AuditLog.id.desc())).first()
    console.print(
        f"all that it keeps was searched by {task.ended_at:%Y-%m-%d %H:%M} UTC; whatever was "
        "found is erased for good, a day later or within a month, unless it is constitutional\n"
        f"record {record and record.sequence} of its chain: {record and record.hash}"
    )
    asked = asked_for_persons(task.created_at, clock.now()).where(AgentMemory.agent_id == agent.id)
    for _, id_, is_locked in db.session.execute(asked) if figures else ():
        console.print(f"waits: #{id_}{', until its flag is lifted' if is_locked else ''}")
