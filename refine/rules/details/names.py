"""Which words are proper names."""

import re
import unicodedata

from stopwordsiso import stopwords

from refine.rules.details.folding import fold
from refine.rules.details.lexicon.function_words import FUNCTION_WORDS
from refine.rules.details.lexicon.german_nouns import GERMAN_NOUNS
from refine.rules.details.lexicon.openings import OPENINGS

_LANGUAGES = "en de fr es it pt nl pl ru uk cs el tr sv fi da no ar he hi zh ja ko th"
# Given names that are on lists of stop words or among the openings.
_NAMES = """
ed bill bo al jo li sean mia ella dan mila otto sara sue ben mai ali ela sam tom jen tim kim sana
hans mina kai asia gene june may mark will hope rich joy ted ned ole yu mo christian
"""
# Titles that do not end a sentence in spite of their full stop.
_TITLES = """
mr mrs ms dr prof st sr jr mme mlle mgr fr rev hr dott sra sig bzw vs no nr fig св г ул
"""
# Capitalized even within sentences, but not names.
_NEVER = """
i sie ihr ihnen ihre ihren ihrem ihrer ihres user users assistant human вы вас вам ваш ok
mr mrs ms dr prof herr herrn frau monsieur madame señor señora pan pani
"""
# Names at the head of a sentence only if a verb of the third person follows.
_NAME_OR_VERB = frozenset({"will", "may", "mark", "hope"})
_THIRD_PERSON = re.compile(
    r"is|was|has|had|and|who|can|could|would|did|went|came|said|told|took|gave|got|made|left|saw|met"
    r"|bought|won|lost|kept|felt|thought|knew|wrote|ran|.{2,}(?:s|ed)"
)
_POSSESSIVE = re.compile(r".['’]s$|s['’]$", re.IGNORECASE)

_SENTENCE_END = re.compile(r"[.!?…:;\n\r*•–—|>\"“”„«»(¿¡\[‘。！？।؟#]|(?:^|\s)-\s|\s-\s")


def _pronouns(languages: str) -> frozenset[str]:
    """Return the stop words of these languages, among them all pronouns, and function words."""
    words = (
        part
        for word in stopwords(languages.split())
        for part in re.split(r"['’\s]", fold(unicodedata.normalize("NFKC", word)))
        if part
    )
    return FUNCTION_WORDS.union(words).difference(_NAMES.split())


# In an English text, Nell and Una are not the words that they are elsewhere. Other languages are
# guessed less surely.
_PRONOUNS_OF_ANY, _PRONOUNS_OF = _pronouns(_LANGUAGES), {"en": _pronouns("en")}
_OPENINGS = OPENINGS.difference(_NAMES.split())
_TITLE_WORDS, _NEVER_NAMES = frozenset(_TITLES.split()), frozenset(_NEVER.split())


def begins_sentence(gap: str, before: str) -> bool:
    """Tell whether a word begins a sentence; ``gap`` stands between it and ``before``, if any."""
    if not before:
        return True
    if gap == " ":
        return False
    if gap.strip() == "." and (before in _TITLE_WORDS or (len(before) == 1 and before.isalpha())):
        return False
    return _SENTENCE_END.search(gap) is not None


def name_key(word: str, folded: str, following: str, *, at_head: bool, language: str) -> str | None:
    """Return the key of a word of a script with capitals if it is a name, or None.

    ``name:tomasz``; ``head:allergic`` where the capital may be that of the sentence alone.
    ``following``: the next word, folded. ``at_head``: the word would have a capital in any case.
    ``language``: a guess at the text's.
    """
    if language == "de" and folded in GERMAN_NOUNS:
        return None
    inner = word[1:]
    if any(map(str.isdecimal, inner)):
        return f"name:{folded}"
    if inner != inner.lower() and not at_head and folded not in _NEVER_NAMES:
        return f"name:{folded}"
    pronouns = _PRONOUNS_OF.get(language, _PRONOUNS_OF_ANY)
    return _capitalised(word, folded, following, at_head=at_head, pronouns=pronouns)


def _capitalised(
    word: str, folded: str, following: str, *, at_head: bool, pronouns: frozenset[str]
) -> str | None:
    if not word[0].isupper() or folded in _NEVER_NAMES or (len(folded) == 1 and at_head):
        return None
    if not at_head:
        return f"name:{folded}"
    if _POSSESSIVE.search(word) and folded not in pronouns:
        return f"head:{folded}"
    if folded in pronouns or folded in _OPENINGS:
        return None
    if folded in _NAME_OR_VERB and _THIRD_PERSON.fullmatch(following) is None:
        return None
    return f"head:{folded}"
