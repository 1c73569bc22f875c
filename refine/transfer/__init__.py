"""Memories that move in and out: the formats of other systems, and Refine's own.

A reader turns a file into rows, one at a time: memories, or places that are none and why.
``importing`` writes them. Nothing here puts content into a message: a bad row is named by where it
stands.
"""
