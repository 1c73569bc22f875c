"""Agents that need a person: found by the figures on their rows as their last session says."""

import pytest
from flask import Flask

from refine.extensions import db
from refine.models import RefinementSession
from refine.models.attention import cases
from refine.models.runs.session.state import ENDED, NEED_ATTENTION, EndStatus
from tests import factories


def ended(status: EndStatus) -> RefinementSession:
    session = factories.session()
    session.finish(status, "for a test")
    db.session.commit()
    return session


def found_as() -> list[str]:
    return [kind for kind, found in cases(None).items() if found]


@pytest.mark.parametrize("status", ENDED)
def test_an_agent_is_found_if_its_last_session_needs_attention(
    app: Flask, status: EndStatus
) -> None:
    session = ended(status)

    assert session.needs_attention == (status in NEED_ATTENTION)
    assert found_as() == ([status] if session.needs_attention else [])


@pytest.mark.parametrize("status", NEED_ATTENTION)
def test_an_agent_is_not_found_once_its_last_session_was_acknowledged(
    app: Flask, status: EndStatus
) -> None:
    session = ended(status)

    session.acknowledge(factories.user(account=session.agent.account))
    db.session.commit()

    assert not session.needs_attention
    assert found_as() == []
