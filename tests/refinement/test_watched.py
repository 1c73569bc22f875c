"""The rehearsal model takes its time where somebody watches, and nowhere else."""

from types import SimpleNamespace

import pytest

from refine import demo, settings
from refine.extensions import db
from refine.models import Agent, RefinementSession
from refine.models.integrity import verify_all
from refine.refinement import loop


@pytest.mark.parametrize("is_watched", [True, False])
def test_the_rehearsal_model_takes_a_breath_where_somebody_watches(app, monkeypatch, is_watched):
    demo.load_into_empty_database()
    session = RefinementSession.queue(Agent.named("Fathom"), "cli")
    db.session.commit()
    breaths: list[float] = []
    monkeypatch.setattr(loop, "time", SimpleNamespace(sleep=breaths.append))

    def watch(event: loop.SessionEvent) -> None:
        if is_watched:
            event.session.note_watched()

    ended = loop.refine(session.id, settings.current(), observe=watch)

    assert ended.llm_calls == 2
    assert breaths == ([loop.BREATH_SECONDS] * 2 if is_watched else [])
    db.session.rollback()
    assert [chain.problem for chain in verify_all() if chain.problem is not None] == []
