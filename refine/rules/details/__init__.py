"""The details of a text, and whether another text still carries them."""

from refine.rules.details.reader import read
from refine.rules.details.reading import Reading, carries, likeness, mentions

__all__ = ["Reading", "carries", "likeness", "mentions", "read"]
