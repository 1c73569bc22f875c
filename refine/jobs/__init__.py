"""Thin RQ jobs: an id goes in, a verb is called. RQ and Redis are never the record."""
