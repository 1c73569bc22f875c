"""Arithmetic and parsing that must never be wrong: plain values in, plain values out.

Nothing here knows Flask, SQLAlchemy, RQ or requests.
"""
