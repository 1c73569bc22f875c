"""The details of a text, and whether another text still carries them."""

from refine.rules.details.reading import Reading, carries, likeness, mentions, read

__all__ = ["Reading", "carries", "likeness", "mentions", "read"]
