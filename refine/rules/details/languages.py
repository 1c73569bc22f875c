"""A guess at a text's language: enough to choose word endings and tell number words."""

import re
from collections.abc import Iterable

from refine.rules.details.folding import fold

_MARKERS = {
    "en": """
        i a my we me you it but not are were had on for from they in this the and is was
        her his my she he with at of likes that has to""",
    "de": """
        der die das und ist nicht ein eine mit auf ich sie er im von zu zum zur den dem des hat
        mein""",
    "fr": "le les et est des du une dans elle il je ne pas sur avec chez aux qui",
    "es": "el los las y es del una en con ella su por para se le que mi muy",
    "it": "il gli è della del di che per una con suo sua lei lui nel alla ogni",
    "pt": "o os as e é do da dos um uma com ele ela seu sua não em no na",
    "nl": "het een en van is niet met ik zij hij op voor haar zijn",
    "sv": "och är det en ett inte med på hon han av för som jag",
    "pl": "i w z na się jest nie do to ma dla jej jego od po ze we lubi mieszka u",
    "cs": "a v s na se je není do to má pro její jeho od po ve u rád ráda bydlí",
    "tr": """
        ve bir bu da de ile için çok ben o onun yaşında doğdu seviyor oturuyor var yok sever
        gider""",
    "fi": """
        sai joka vuotta vuonna vuotias kun nyt niin ja ei se hän että minä oli kanssa asuu hänen
        mutta myös""",
}
# Letters of few languages.
_LETTERS = {
    "tr": "ığş", "pl": "łąęśźż", "cs": "ěřů", "de": "ß", "es": "ñ¿¡", "pt": "ãõ", "sv": "å",
}  # fmt: skip
_LETTER_LANGUAGES = {
    letter: language for language, letters in _LETTERS.items() for letter in letters
}
_LETTER = re.compile(f"[{''.join(_LETTER_LANGUAGES)}]")
_LANGUAGES: dict[str, list[str]] = {}
for _language, _words in _MARKERS.items():
    for _word in dict.fromkeys(_words.split()):
        _LANGUAGES.setdefault(fold(_word), []).append(_language)


def guess_language(text: str, words: Iterable[str]) -> str:
    """Return the code of the language that most of a text's folded words and letters point to.

    "" if nothing does, and for languages of other scripts than Latin.
    """
    counts: dict[str, int] = {}
    if not text.isascii():
        for letter in _LETTER.findall(text):
            counts[_LETTER_LANGUAGES[letter]] = counts.get(_LETTER_LANGUAGES[letter], 0) + 1
    for word in words:
        for language in _LANGUAGES.get(word, ()):
            counts[language] = counts.get(language, 0) + 1
    # The first of equals, in the order of the table.
    return max(_MARKERS, key=lambda language: counts.get(language, 0)) if counts else ""
