"""Trials: generated memories, simulated models of all kinds, and what their sessions leave.

``refine bench survival`` lets a year pass with each model, ``refine evaluate`` tries a real one.
"""
