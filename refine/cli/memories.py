"""One memory on the server's command line, unread."""

import click

from refine.cli.context import application
from refine.cli.output import console
from refine.errors import NotFound
from refine.extensions import db
from refine.models import Agent, AgentMemory
from refine.models.erasing import erase


@click.group()
def memory() -> None:
    """Erase a memory for good."""


@memory.command("erase")
@click.argument("memory_id", metavar="ID", type=int)
@click.option("--with-descendants", is_flag=True, help="Also erase what was made of it.")
def memory_erase(memory_id: int, with_descendants: bool) -> None:
    """Erase the memory ID for good, with what it was made of or replaced, and its copies.

    Asked for twice: the second time at least a day after the first. The agent is told each time.
    """
    with application("memory erase"):
        found = db.session.get(AgentMemory, memory_id)
        if found is None:
            raise NotFound(f"there is no memory {memory_id}")
        agent = db.session.get_one(Agent, found.agent_id)
        done = erase(agent, memory_id, "command line", with_descendants=with_descendants)
        db.session.commit()
        named = ", ".join(f"#{id_}" for id_ in done.ids)
        if done.from_at is None:
            console.print(f"erased for good from {agent.name}: {named}")
        else:
            console.print(
                f"to be erased from {agent.name}: {named}; repeat this from "
                f"{done.from_at:%Y-%m-%d %H:%M} UTC on to confirm it"
            )
        if done.descendants:
            left = ", ".join(f"#{id_}" for id_ in done.descendants)
            console.print(f"made of these, and staying: {left} (--with-descendants)")
