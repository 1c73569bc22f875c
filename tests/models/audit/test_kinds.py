"""The kinds of recorded actions."""

from itertools import chain

from refine.models.audit.kinds import ACTIONS_OF_KIND
from refine.web.words import RECORD_KINDS
from tests.recorded_actions import recorded_actions


def test_every_recorded_action_is_of_exactly_one_kind() -> None:
    assert sorted(chain(*ACTIONS_OF_KIND.values())) == sorted(recorded_actions())


def test_every_kind_has_a_name() -> None:
    assert list(RECORD_KINDS) == list(ACTIONS_OF_KIND)
