"""The models of the trials: each a function from what it is shown to the calls that it makes."""

from refine.trials.keepers.conversation import Conversation, Step
from refine.trials.keepers.keepers import KEEPERS, Keeper

__all__ = ["KEEPERS", "Conversation", "Keeper", "Step"]
