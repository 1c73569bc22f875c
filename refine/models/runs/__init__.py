"""Runs: work for which one worker calls an agent's model."""
