"""Whatever a session is allowed to do, one memory goes on saying what each of its snapshot said."""

from decimal import Decimal
from typing import Any

import pytest
from flask import Flask
from hypothesis import HealthCheck, given, settings, strategies as st

from refine.extensions import db
from refine.models import Agent, RefinementSession
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
FILLER = ("nothing", "of", "it", "was", "ever", "said", "twice")

numbers = st.integers(2, 40)
facts = st.builds(
    lambda form, who, number, where: form.format(who, number, where),
    *(st.sampled_from(FACTS), st.sampled_from(PEOPLE), numbers, st.sampled_from(PLACES)),
)
ledgers = st.lists(facts, min_size=3, max_size=7, unique=True)
picks = st.lists(st.integers(0, 6), min_size=1, max_size=3)
# how a model writes: all of it, some words of it, filler, or a list of its words
ways = st.sampled_from(["join", "longest", "some", "filler", "reversed"])
edits = st.lists(st.tuples(st.sampled_from(["delete", "update", "merge", "protect"]), picks, ways))


def written(texts: list[str], way: str) -> str:
    words = " ".join(texts).split()
    return {
        "join": " and ".join(texts),
        "longest": max(texts, key=len),
        "some": " ".join(words[::2]) or words[0],
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


@pytest.mark.parametrize("examples", [15, pytest.param(150, marks=pytest.mark.nightly)])
def test_no_sequence_of_accepted_edits_leaves_out_what_a_memory_said(
    app: Flask, examples: int
) -> None:
    @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))
    @given(contents=ledgers, sessions=st.lists(edits, min_size=1, max_size=3))
    def holds(contents: list[str], sessions: list[list[tuple[str, list[int], str]]]) -> None:
        agent = factories.agent(*contents, refinement_threshold=0.05)
        for edits_of_session in sessions:
            tool = RefinementTool(RefinementSession.start(agent))
            db.session.commit()
            for verb, chosen, way in edits_of_session:
                tool.execute(**call(agent, verb, chosen, way))
                said = kept(agent).values()
                assert [text for text in contents if not is_said(text, said, SHARE)] == []
            tool.execute(action="complete", summary="Done.")
        db.session.rollback()

    holds()
