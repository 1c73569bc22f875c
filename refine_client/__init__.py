"""A client for an agent's memory in Refine; each adapter is a module of its own."""

from refine_client.client import Refine, RefineError

__all__ = ["Refine", "RefineError"]
