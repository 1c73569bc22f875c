"""The details of a text, and whether another text still carries them.

A detail is what no paraphrase can replace: a number, a date or time, a proper name, a
quotation, an address. ``read`` finds the details of a text, ``carries`` tells whether another
text has one of them and speaks of the same thing, ``likeness`` what share of the words it has.

A word that may be a name counts as one: a missed name can be lost for good, while
a false one only refuses an edit that drops the word altogether.

Not seen:

- values that change places ("Anna 17, Tom 18" and "Anna 18, Tom 17"), and negations;
- units and currencies beside a number, and 3,142 for 3.142;
- a name that is also an ordinary word, once the other text has that word (Will, Rose);
- two names, if one looks like a form of the other in its language (Валентин, Валентина);
- names that nothing marks, in scripts without capitals: see ``uncased_names``, ``eastern_names``;
- a letter behind a number (5a), a value that stands twice (3 1 4 1), "twice" and "a dozen", a sign
  behind a letter (O+);
- number words and months of languages that ``lexicon`` does not know.
"""

from refine.rules.details.reader import read
from refine.rules.details.reading import Reading, carries, likeness, mentions

__all__ = ["Reading", "carries", "likeness", "mentions", "read"]
