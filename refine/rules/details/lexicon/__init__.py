"""Words that carry a meaning of their own, in the languages that we know."""
