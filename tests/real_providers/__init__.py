"""Whole sessions through servers that others wrote, run by hand: ``make providers``."""
