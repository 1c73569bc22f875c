"""Refinement sessions at work: the prompts, the loop, and undo."""
