"""Arithmetic and parsing on plain values, without Flask, SQLAlchemy, RQ or requests."""
