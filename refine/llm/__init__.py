"""Asking a model, over plain HTTP."""
