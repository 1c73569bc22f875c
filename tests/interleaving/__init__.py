"""Actors on one database, interleaved statement by statement as a seed decides."""
