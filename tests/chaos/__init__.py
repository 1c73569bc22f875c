"""Real processes under random faults, and a checker of what came of it (``make chaos``)."""
