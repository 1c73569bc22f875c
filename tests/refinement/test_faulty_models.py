"""Whole runs whose model's server has faults of ``tests/providers/faults.py``.

Each ends with the true reason, and the worker that did it goes on to the next.
"""

import json

import pytest

from refine.llm import provider
from refine.llm.provider import MAX_ATTEMPTS
from tests.chains import verify_agent
from tests.providers.faults import CANARY, FAULTS

FATAL = [fault for fault in FAULTS.values() if fault.kind is not None and not fault.endless]
HARMLESS = [fault.name for fault in FAULTS.values() if fault.kind is None]
ONE_OF_EACH_KIND = list({fault.kind: fault for fault in FATAL}.values())


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provider, "_BACKOFF_SECONDS", (0.0, 0.0))


def test_a_fault_ends_its_session_with_the_true_reason_and_no_other(world):
    for fault in ONE_OF_EACH_KIND:
        for _ in range(MAX_ATTEMPTS):
            world.model.answer(fault.play)

        session = world.refine()

        assert (session.status, session.error_kind) == ("failed", fault.kind), fault.name
        assert CANARY not in (session.end_reason or ""), fault.name
        world.model.forget()
    world.model.say("YES").call("delete", id=world.ids[0]).call("complete", summary="One less.")
    assert world.refine().status == "completed"
    assert verify_agent(world.agent).problem is None


@pytest.mark.parametrize("name", HARMLESS)
def test_an_odd_reply_ends_no_session(world, name):
    world.model.say("YES").answer(FAULTS[name].play).call("complete", summary="Nothing to do.")

    session = world.refine()

    if name == "100 calls":
        assert (session.status, session.error_kind) == ("incomplete", None)
        assert "60 tool calls" in (session.end_reason or "")
    else:
        assert (session.status, session.error_kind) == ("completed", None)
        assert "\\ud83d" not in json.dumps(world.asked(-1))
