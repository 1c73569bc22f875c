"""The models of the trials: each a function from what it is shown to the calls that it makes."""

from bench.simulated_models.conversation import Conversation, Step
from bench.simulated_models.models import SIMULATED_MODELS, SimulatedModel

__all__ = ["SIMULATED_MODELS", "Conversation", "SimulatedModel", "Step"]
