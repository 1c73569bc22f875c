"""Refinement sessions: their life, their edits, and their limits."""
