"""Thin RQ jobs: they take an id and call one method. RQ and Redis are never the source of truth."""
