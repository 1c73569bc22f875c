"""Whatever sessions are allowed to do, one memory goes on saying what each said, and all but one
keep their words.
"""

import re
from collections.abc import Collection
from decimal import Decimal
from typing import Any

import pytest
from flask import Flask
from hypothesis import HealthCheck, given, settings, strategies as st

from refine.extensions import db
from refine.models import Agent, RefinementSession
from refine.refinement.time_machine import undo
from refine.rules.meaning import is_said
from refine.tools import RefinementTool
from tests import factories

SHARE = Decimal("0.65")
PEOPLE = ("Mira", "Tomasz", "Ines", "Олег", "Ελένη")
PLACES = ("Kastell", "Lagos", "https://example.org/map", "@harbour", "the “Blue Cup”")
FACTS = (
    "{} has {} brown hens near {}",
    "in {} {} boats were counted, says {}",
    "{} promised {} letters to the people of {}",
)
# the words of FACTS that say nothing by themselves
SMALL = {"has", "near", "in", "were", "says", "to", "the", "of"}
FILLER = ("nothing", "of", "it", "was", "ever", "said", "twice")

numbers = st.integers(2, 40)
facts = st.builds(
    lambda form, who, number, where: form.format(who, number, where),
    *(st.sampled_from(FACTS), st.sampled_from(PEOPLE), numbers, st.sampled_from(PLACES)),
)
ledgers = st.lists(facts, min_size=3, max_size=7, unique=True)
picks = st.lists(st.integers(0, 6), min_size=1, max_size=3)
# how a model writes: all of it, some words of it, filler, or a list of its words
ways = st.sampled_from(["join", "longest", "some", "most", "filler", "reversed"])
edits = st.lists(st.tuples(st.sampled_from(["delete", "update", "merge", "protect"]), picks, ways))
# the edits of a session, and whether it is undone
sessions = st.lists(st.tuples(edits, st.booleans()), min_size=1, max_size=3)


def written(texts: list[str], way: str) -> str:
    words = " ".join(texts).split()
    return {
        "join": " and ".join(texts),
        "longest": max(texts, key=len),
        "some": " ".join(words[::2]) or words[0],
        "most": " ".join(words[:2] + words[3:]),
        "filler": " ".join((FILLER * len(words))[: len(words)]),
        "reversed": " ".join(reversed(words)),
    }[way]


def kept(agent: Agent) -> dict[int, str]:
    return {each.id: each.content for each in db.session.scalars(agent.ledger.core())}


def call(agent: Agent, verb: str, chosen: list[int], way: str) -> dict[str, Any]:
    ledger = kept(agent)
    ids = list(dict.fromkeys(list(ledger)[pick % len(ledger)] for pick in chosen))
    if verb == "merge":
        content = written([ledger[id_] for id_ in ids], way)
        return {"action": "consolidate", "ids": ids, "content": content}
    if verb == "update":
        return {"action": "update", "id": ids[0], "content": written([ledger[ids[0]]], way)}
    return {"action": verb, "id": ids[0]}


def words(text: str) -> set[str]:
    return set(re.findall(r"[\w@:/.]+", text)) - SMALL


def lost(contents: list[str], said: Collection[str]) -> list[str]:
    """Return what no memory says that has all of its words."""
    return [text for text in contents if not any(words(text) <= words(each) for each in said)]


@pytest.mark.parametrize("examples", [15, pytest.param(150, marks=pytest.mark.nightly)])
def test_no_sequence_of_accepted_edits_leaves_out_what_a_memory_said(
    app: Flask, examples: int
) -> None:
    @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))
    @given(contents=ledgers, lived=sessions)
    def holds(contents: list[str], lived: list[tuple[list[tuple[str, list[int], str]], bool]]):
        agent = factories.agent(*contents, refinement_threshold=0.05)
        for edits_of_session, is_undone in lived:
            session = RefinementSession.start(agent)
            tool = RefinementTool(session)
            db.session.commit()
            for verb, chosen, way in edits_of_session:
                tool.execute(**call(agent, verb, chosen, way))
                said = kept(agent).values()
                assert [text for text in contents if not is_said(text, said, SHARE)] == []
                # one of a few memories may lose words in sixty days
                assert len(lost(contents, said)) <= 1
            tool.execute(action="complete", summary="Done.")
            if is_undone and session.has_changes:
                undo(session, through="agent")
        db.session.rollback()

    holds()
