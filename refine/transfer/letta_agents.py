"""The agents of a Letta file, and which of its blocks belong to the one to be imported."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

from refine.errors import InvalidValue
from refine.rules.quantities import abbreviated, plural
from refine.transfer.json_document import Document, Place

# Not whole agents: their messages may exceed the limit of a row.
_PLACES: tuple[Place, ...] = tuple(("agents", None, name) for name in ("id", "name", "block_ids"))

_MAX_SHOWN_CHARACTERS = 60


class AgentUnclear(InvalidValue):
    """It is not clear which of a file's agents to import; the message lists them."""


@dataclass(frozen=True)
class FileAgent:
    """An agent of a file. ``block_ids`` is None where the file does not tell."""

    id: str
    name: str
    block_ids: frozenset[str] | None

    def __str__(self) -> str:
        blocks = plural(len(self.block_ids or ()), "block")
        return f"{_shown(self.name) or 'no name'} ({_shown(self.id) or 'no id'}, {blocks})"


def block_ids_of(stream: BinaryIO, wanted: str | None) -> set[str] | None:
    """Return the ids of the blocks to import; None: all of them.

    ``wanted`` is the name or id of an agent. Without it, the agents that have blocks must have the
    same ones. Raises AgentUnclear.
    """
    agents = _agents_in(stream)
    if wanted is not None:
        chosen = _named(agents, wanted)
        if chosen.block_ids is None and any(agent.block_ids is not None for agent in agents):
            return set()  # the file tells the blocks of others alone
        agents = [chosen]
    known = [agent.block_ids for agent in agents if agent.block_ids is not None]
    if not known:
        return None
    if len(set(filter(None, known))) > 1:
        raise AgentUnclear(
            f"the file holds {len(agents)} agents; choose one by name or id: {_listed(agents)}"
        )
    return set().union(*known)


def _agents_in(stream: BinaryIO) -> list[FileAgent]:
    fields: dict[Any, dict[Any, Any]] = {}
    try:
        for element in Document(stream, _PLACES).elements():
            _, number, field = element.path
            fields.setdefault(number, {})[field] = element.value
    except InvalidValue:
        pass  # reading the rows reports the same error
    return [_agent(agent) for agent in fields.values()]


def _agent(fields: dict[Any, Any]) -> FileAgent:
    ids = fields.get("block_ids")
    return FileAgent(
        id=str(fields.get("id", "")),
        name=str(fields.get("name", "")),
        block_ids=frozenset(map(str, ids)) if isinstance(ids, list) else None,
    )


def _named(agents: Sequence[FileAgent], wanted: str) -> FileAgent:
    found = [agent for agent in agents if agent.id == wanted]
    found = found or [agent for agent in agents if agent.name == wanted]
    if len(found) > 1:
        raise AgentUnclear(
            f"the file holds several agents of this name; choose one by id: {_listed(found)}"
        )
    if not found:
        holds = f"it holds {_listed(agents)}" if agents else "it names none"
        raise AgentUnclear(f"the file holds no agent with this name or id; {holds}")
    return found[0]


def _listed(agents: Sequence[FileAgent]) -> str:
    return abbreviated([str(agent) for agent in agents], ", ")


def _shown(text: str) -> str:
    """Return a text of a file as a terminal may show it: short, and without control characters."""
    visible = "".join(letter if letter.isprintable() else "?" for letter in text)
    return visible if len(visible) <= _MAX_SHOWN_CHARACTERS else f"{visible[:59]}…"
