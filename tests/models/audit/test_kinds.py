"""The kinds of recorded actions."""

from itertools import chain

import pytest

from refine.models.audit import PLATFORM, AuditLog
from refine.models.audit.kinds import ACTIONS, ACTIONS_OF_KIND


def test_every_action_is_of_exactly_one_kind():
    assert sorted(chain(*ACTIONS_OF_KIND.values())) == sorted(ACTIONS)
    assert all(ACTIONS.values())  # in words


def test_every_recorded_action_has_a_kind(app):
    with pytest.raises(LookupError, match="memory_dreamt"):
        AuditLog.record("memory_dreamt", chain=PLATFORM)
