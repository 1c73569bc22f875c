"""A session from its id to its end: what the agent is asked, and what is done with its answers."""
