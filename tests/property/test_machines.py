"""Random sessions against the reference model: whatever happens, the guarantees hold."""

from typing import Any

import pytest
from flask import Flask
from hypothesis import HealthCheck, settings, strategies as st
from hypothesis.stateful import precondition, rule, run_state_machine_as_test

from refine import clock
from refine.extensions import db
from refine.models import RefinementSession, SessionAlreadyLive
from refine.models.runs.session.session import MAX_HANDED_BACK
from refine.tools import RefinementTool
from tests.property.machine import Life, lengths, picks

mistakes = st.sampled_from(
    [
        {"action": None},
        {"action": ["delete"]},
        {"action": "delete", "id": "1abc"},
        {"action": "delete", "id": 1, "force": True},
        {"action": "update", "id": 1, "content": ""},
        {"action": "update", "id": 1, "content": "a\x00b"},
        {"action": "consolidate", "ids": [1], "content": "alone"},
        {"action": "search", "query": "x" * 501},
        {"action": "complete", "summary": "  "},
    ]
)


class Sessions(Life):
    """Tool calls and mistakes, in any order, among all that may happen besides."""

    @rule()
    def a_session_starts_unless_one_is_live(self) -> None:
        if self.reference.live:
            with pytest.raises(SessionAlreadyLive) as live:
                RefinementSession.start(self.agent)
            assert live.value.session_id == self.session_ids[-1]
            db.session.rollback()
        else:
            self.start()

    @precondition(lambda self: self.reference.live)
    @rule(pick=picks)
    def delete(self, pick: int) -> None:
        self.delete_one(self.pick(pick))

    @precondition(lambda self: self.reference.live)
    @rule(pick=picks, size=lengths)
    def update(self, pick: int, size: int) -> None:
        self.update_one(self.pick(pick), self.text(size))

    @precondition(lambda self: self.reference.live)
    @rule(chosen=st.lists(picks, min_size=2, max_size=4), size=lengths)
    def consolidate(self, chosen: list[int], size: int) -> None:
        self.merge([self.pick(pick) for pick in chosen], self.text(size))

    @precondition(lambda self: self.reference.live)
    @rule(pick=picks)
    def protect(self, pick: int) -> None:
        self.protect_one(self.pick(pick))

    @precondition(lambda self: self.reference.live)
    @rule(query=st.sampled_from(["abc", "DEFG", "%", "_", "zzz"]))
    def search(self, query: str) -> None:
        result = self.call(None, action="search", query=query)
        found = [
            id_
            for id_, memory in self.reference.kept_core().items()
            if query.lower() in memory["content"].lower()
        ]
        assert result["count"] == len(found)
        for entry in result["results"]:
            if entry["id"] in self.reference.shown:
                memory = self.reference.memories[entry["id"]]
                self.reference.shown[entry["id"]] = dict(memory)

    @precondition(lambda self: self.reference.live)
    @rule()
    def another_worker_continues(self) -> None:
        session = db.session.get_one(RefinementSession, self.session_ids[-1])
        if session.handed_back == MAX_HANDED_BACK:
            return
        session.consented_at = session.consented_at or clock.now()
        session.hand_back("its process was asked to stop", {})
        db.session.commit()
        with pytest.raises(SessionAlreadyLive):
            RefinementSession.queue(self.agent, "cli")
        db.session.rollback()
        assert session.claim() is not None
        db.session.commit()
        self.tool = RefinementTool(session)

    @precondition(lambda self: self.reference.live)
    @rule(mistake=mistakes)
    def a_mistake_of_the_model_changes_nothing(self, mistake: dict[str, Any]) -> None:
        assert self.tool is not None
        assert self.tool.execute(**mistake)["type"] == "error"

    @precondition(lambda self: self.reference.live)
    @rule()
    def complete(self) -> None:
        self.end()

    @precondition(lambda self: self.tool is not None and not self.reference.live)
    @rule(pick=picks)
    def after_the_end_every_call_is_refused(self, pick: int) -> None:
        self.call("Session terminated", action="delete", id=self.pick(pick))


@pytest.mark.parametrize(
    ("machine", "examples"),
    [
        (Sessions, 4),
        (Life, 6),
        pytest.param(Sessions, 50, marks=pytest.mark.nightly),
        pytest.param(Life, 60, marks=pytest.mark.nightly),
    ],
)
def test_no_sequence_of_calls_writes_toggles_and_undos_breaks_a_guarantee(
    app: Flask, machine: type[Life], examples: int
) -> None:
    """Sessions of many calls, and lives of many short sessions, most of which are undone."""
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=30,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
