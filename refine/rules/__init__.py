"""Arithmetic and parsing that must never be wrong: plain values in, plain values out.

No Flask, SQLAlchemy, RQ or requests.
"""
