"""Which words are proper names."""

import re

from stopwordsiso import stopwords

from refine.rules.details.folding import fold

_LANGUAGES = (
    "en",
    "de",
    "fr",
    "es",
    "it",
    "pt",
    "nl",
    "pl",
    "ru",
    "uk",
    "cs",
    "el",
    "tr",
    "sv",
    "fi",
    "ar",
    "he",
    "hi",
    "zh",
    "ja",
    "ko",
)
# Given names that are on the lists of stop words.
_NAMES = frozenset(
    "ed bill bo al jo li sean mia ella dan mila otto sara sue ben mai ali ela sam tom jen tim kim "
    "sana hans mina kai asia gene uma".split()
)
# Words with which memories begin, and which name nobody.
_OPENINGS = """
likes loves enjoys prefers wants wishes works lives has hates dislikes owns plays studies plans hopes
user users assistant human met moved started stopped bought visited learned talked asked told
favorite favourite allergic married born remember note today yesterday tomorrow tonight
"""

FUNCTION_WORDS = frozenset(
    fold(part) for word in stopwords(_LANGUAGES) for part in re.split(r"['’\s]", word) if part
)
_ORDINARY = (FUNCTION_WORDS | frozenset(_OPENINGS.split())) - _NAMES
_NEVER = frozenset("i sie ihr ihnen ihre ihren user assistant".split())

_HEAD = re.compile(r"[.!?…:;\n•*–—|>\"“„«(¿¡\[‘。！？]")
_TITLES = frozenset("mr mrs ms dr prof st sr jr mme mlle herr frau don".split())


def begins_sentence(gap: str, before: str) -> bool:
    """Tell whether a word stands at the head of a sentence; ``before``: the word before it."""
    if not before:
        return True
    if gap.strip() == "." and (len(before) == 1 or before in _TITLES):
        return False
    return _HEAD.search(gap) is not None


def is_name(word: str, folded: str, *, at_head: bool) -> bool:
    """Tell whether a word of a script with capitals is a name."""
    inner = word[1:]
    if any(map(str.isdigit, word)) or (inner != inner.lower() and folded not in _ORDINARY):
        return True
    if not word[0].isupper() or folded in _NEVER or len(word) == 1:
        return False
    return not at_head or folded not in _ORDINARY
