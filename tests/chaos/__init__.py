"""Real processes under random faults; what holds of each agent afterwards (``make chaos``)."""
