"""The rehearsal model: a small local server that answers where no provider is configured.

It speaks OpenAI-style chat completions over HTTP, so that a newcomer, a demo and a test use the
same code as with a real provider.
"""

from refine.llm.rehearsal.model import MAX_MERGES, answer
from refine.llm.rehearsal.server import serving

__all__ = ["MAX_MERGES", "answer", "serving"]
