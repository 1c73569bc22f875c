"""Working on a run: one worker, from the claim to the end."""

from refine.running.model_calls import ModelWorker as ModelWorker
from refine.running.run_worker import RunEnded as RunEnded
