"""A guess at a text's language, from its commonest words: enough to choose word endings."""

from collections.abc import Iterable

from refine.rules.details.folding import fold

_MARKERS = {
    "en": "the and is was her his my she he with at of likes that has to",
    "de": "der die das und ist nicht ein eine mit auf ich sie er im von zu zum zur den dem des hat mein",
    "fr": "le les et est des du une dans elle il je ne pas sur avec chez aux qui",
    "es": "el los las y es del una en con ella su por para se le que mi muy",
    "it": "il gli è della del di che per una con suo sua lei lui nel alla ogni",
    "pt": "o os as e é do da dos um uma com ele ela seu sua não em no na",
    "nl": "het een en van is niet met ik zij hij op voor haar zijn",
    "sv": "och är det en ett inte med på hon han av för som jag",
    "pl": "i w z na się jest nie do to ma dla jej jego od po ze we lubi mieszka u",
    "cs": "a v s na se je není do to má pro její jeho od po ve u rád ráda bydlí",
    "tr": "ve bir bu da de ile için çok ben o onun yaşında doğdu seviyor oturuyor",
    "fi": "ja on ei se hän että minä oli kanssa asuu hänen mutta myös",
}
_LANGUAGES: dict[str, set[str]] = {}
for _language, _words in _MARKERS.items():
    for _word in _words.split():
        _LANGUAGES.setdefault(fold(_word), set()).add(_language)


def guess_language(words: Iterable[str]) -> str:
    """Return the code of the language that most of the folded words point to, or ``""``."""
    counts: dict[str, int] = {}
    for word in words:
        for language in _LANGUAGES.get(word, ()):
            counts[language] = counts.get(language, 0) + 1
    return max(counts, key=counts.__getitem__, default="")
