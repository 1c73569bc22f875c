"""All keepers by name."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from refine.trials.keepers.careful import careful
from refine.trials.keepers.conversation import Conversation, Step
from refine.trials.keepers.deleting import deleting

Play = Callable[[Conversation], list[Step]]


def _saves_nothing(_week: int) -> Sequence[str]:
    """Save nothing of its own."""
    return ()


@dataclass(frozen=True)
class Keeper:
    """A model: what it does in one line, its calls, and what it saves in a week between sessions.

    ``play`` returns the calls of the next reply; none ends the session. A hostile keeper tries to
    lose memories; the others mean well.
    """

    name: str
    does: str
    play: Play
    is_hostile: bool = True
    saves: Callable[[int], Sequence[str]] = _saves_nothing


_ALL = (
    Keeper("careful", "unites what says the same, keeps every detail", careful, is_hostile=False),
    Keeper("deleting", "deletes one memory after another, the largest first", deleting),
)

KEEPERS = {keeper.name: keeper for keeper in _ALL}
