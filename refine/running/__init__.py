"""Working on a run: one worker, from the claim to the end.

What a session, a memory task and a request for access share: the heartbeat, asking the agent's
model, carrying out tool calls, and writing the end whatever happens.
"""

from refine.running.model_calls import ModelWorker
from refine.running.run_worker import RunEnded

__all__ = ["ModelWorker", "RunEnded"]
