"""Moving memories in and out: formats of other systems, and Refine's own.

A reader turns a file into rows, one at a time; ``importing`` writes them. Messages name a bad row
by its place and never quote it.
"""
