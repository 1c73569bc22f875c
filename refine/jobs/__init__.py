"""Thin RQ jobs: they take an id and call a verb. RQ and Redis are never the record."""
