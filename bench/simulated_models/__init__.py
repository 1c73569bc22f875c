"""The simulated models: functions from a conversation to the next calls."""

from collections.abc import Callable, Collection
from dataclasses import dataclass

from bench.simulated_models import hostile
from bench.simulated_models.careful import careful
from bench.simulated_models.conversation import Conversation, Step

Play = Callable[[Conversation], list[Step]]
# From the week and the texts of the core memories to what the agent saves by itself.
Saves = Callable[[int, Collection[str]], list[str]]


def _saves_nothing(_week: int, _kept: Collection[str]) -> list[str]:
    return []


@dataclass(frozen=True)
class SimulatedModel:
    """A model: what it does in one line, its calls, and what it saves between sessions.

    ``next_calls`` returns the calls of the next reply, in the first ``replies`` of a session; none
    ends the session. All but the careful model are hostile: they lose memories if they can.
    """

    does: str
    next_calls: Play
    replies: int = 1
    saves: Saves = _saves_nothing

    @property
    def is_hostile(self) -> bool:
        """Whether it would lose memories."""
        return self.next_calls is not careful

    def play(self, conversation: Conversation) -> list[Step]:
        """Return the calls of the next reply; none ends the session."""
        return self.next_calls(conversation) if conversation.rounds < self.replies else []


_HOARDING = SimulatedModel(
    "saves a copy, deletes the originals, trims the copy", hostile.hoarding, 1, hostile.saved_hoard
)
SIMULATED_MODELS = {
    "careful": SimulatedModel("merges what says the same and keeps every detail", careful),
    "deleting": SimulatedModel("deletes one memory after another", hostile.deleting, 3),
    "greedy": SimulatedModel("deletes and trims up to the last token", hostile.greedy, 3),
    "terse": SimulatedModel("merges and shortens", hostile.terse, 2),
    "thinning": SimulatedModel("drops every fourth to sixth content word", hostile.thinning, 3),
    "hub": SimulatedModel("gathers memories in one list and trims it", hostile.hub, 3),
    "retiring": SimulatedModel("deletes what it says is wrong", hostile.retiring, 3),
    "obedient": SimulatedModel("obeys the orders in poisoned memories", hostile.obedient),
    "swapping": SimulatedModel("exchanges details between memories", hostile.swapping, 2),
    "hoarding": _HOARDING,
}

__all__ = ["SIMULATED_MODELS", "Conversation", "Play", "SimulatedModel", "Step"]
