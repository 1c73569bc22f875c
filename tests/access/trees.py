"""An agent with two sessions, both undone at once, and what each narrow scope opens of it."""

from typing import Any, NamedTuple

from refine.extensions import db
from refine.models import Agent, RefinementSession
from refine.models.agent import configuring
from refine.models.runs.access.asking_rules import AccessScope
from refine.refinement import time_machine
from refine.tools import RefinementTool
from tests import factories


class Trees(NamedTuple):
    agent: Agent
    first: RefinementSession
    second: RefinementSession
    ids: dict[str, int]
    texts: dict[str, str]


def planted(agent: Agent) -> Trees:
    """Two trees are merged and one is rewritten; then another; then all of it is undone."""
    configuring.author(agent, "reflection_prompt", "a prompt of the trees")
    names = ("alder", "birch", "cedar", "elder")
    made = {name: factories.memory(agent, f"{name} {factories.text_of(25)}") for name in names}
    factories.ledger(agent, *[60] * 12)
    ids = {name: memory.id for name, memory in made.items()}
    texts = {name: memory.content for name, memory in made.items()}
    texts["both"] = f"alder birch {factories.text_of(45)}"
    texts |= {f"new {name}": f"{name} {factories.text_of(24)}" for name in ("cedar", "elder")}

    first, merged = _session(
        agent,
        "first",
        ("consolidate", {"ids": [ids["alder"], ids["birch"]], "content": texts["both"]}),
        ("update", {"id": ids["cedar"], "content": texts["new cedar"]}),
    )
    second, _ = _session(
        agent, "second", ("update", {"id": ids["elder"], "content": texts["new elder"]})
    )
    ids["both"] = merged["id"]
    time_machine.undo(first, through="dashboard", and_after=True)
    db.session.commit()
    said = {f"{word} {what}": f"the {word} {what}" for word in ("first", "second") for what in SAID}
    return Trees(agent, first, second, ids, texts | said | {"prompt": "a prompt of the trees"})


SAID = ("reply", "summary")
OF_THE_FIRST = {"alder", "birch", "both", "cedar", "new cedar", "first reply", "first summary"}


def scopes_of(trees: Trees) -> dict[str, tuple[AccessScope, set[str]]]:
    """Scopes, each with the names of all texts that it opens."""
    ids, session_id = trees.ids, trees.first.id
    return {
        "everything": (AccessScope(), set(trees.texts)),
        "the first session": (AccessScope(session_id), OF_THE_FIRST),
        "alder": (_memories(ids["alder"]), {"alder"}),
        "a merge without its sources": (_memories(ids["both"]), {"both"}),
        "two memories": (
            _memories(ids["cedar"], ids["birch"]),
            {"cedar", "new cedar", "birch"},
        ),
        "elder": (_memories(ids["elder"]), {"elder", "new elder"}),
        "cedar in the first session": (
            AccessScope(session_id, frozenset([ids["cedar"]])),
            {"cedar", "new cedar"},
        ),
        "elder in the first session": (AccessScope(session_id, frozenset([ids["elder"]])), set()),
    }


def _memories(*ids: int) -> AccessScope:
    return AccessScope(memory_ids=frozenset(ids))


def _session(
    agent: Agent, word: str, *edits: tuple[str, dict[str, Any]]
) -> tuple[RefinementSession, dict[str, Any]]:
    session = factories.session(agent)
    session.consent_reply = f"YES, the {word} reply"
    tool = RefinementTool(session)
    results = [tool.execute(action=action, **params) for action, params in edits]
    results.append(tool.execute(action="complete", summary=f"the {word} summary"))
    assert "error" not in {result["type"] for result in results}, results
    db.session.refresh(session)
    return session, results[0]
