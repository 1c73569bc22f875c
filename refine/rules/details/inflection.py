"""Forms of one name: ``Tomasz`` and ``Tomasza``, ``Анна`` and ``Анне``, ``Hund`` and ``Hunde``.

Two words are forms of one name if one paradigm of their language has both endings behind the same
stem of at least three letters (two for Cyrillic). Where languages of one script differ, the
language of the text decides. Not seen: vowels and consonants that change within a stem, other than
those listed, and pairs of different names that look like forms of one (Валентин, Валентина).
"""

import re
from collections.abc import Iterable, Mapping

from refine.rules.details.folding import fold
from refine.rules.details.uncased_names import is_joined_form_of

_SLAVIC_LATIN = """
- a owi em iem u ie owie
a y ę ą ie i
ia ii ię ią
ya yi ę ą yę yą
ta cie ty tę tą
da dzie dy dę dą
ra rze ry rę rą
ła le ły łę łą
ga dze gi gę gą
ka ce ki kę ką
cha sze chy chę chą
ek ka kowi kiem ku
iek ka kowi kiem ku
eł ła łowi łem le łu
ec ca cowi cem cu
owa owej ową
ów owa owowi owem owie
ódź odzi odzią
dź dzi dzią
ski skiego skiemu skim
ska skiej ską
r ra rowi rem rze
t ta towi tem cie
ł ła łowi łem le
"""
_CZECH = """
- a u ovi em e ě
a y ě u ou
ová ové ovou
á é ou
"""
_PARADIGMS = {
    "cyrillic": """
        - а у ом ем е ом
        а ы и е у ой ою
        я и е ю ей ею й
        ия ии ию ией иею
        й я ю ем е
        ий ия ию ием ии
        ь я ю ем е
        ь и ью
        ский ского скому ским ском
        ская скую ской
        ец ца цу цем це цом
        ек ка ку ком ке
        ёк ька ьку ьком ьке
        ел ла лу лом ле
        ов ова ову овым ове
        ев ева еву евым еве
        ин ина ину иным ине
        ова овой ову
        ева евой еву
        ина иной ину
        а і и у ою о
        о а у ом ові і""",
    "greek": """
        ος ου ο ε ον
        ας α
        ης η
        ις η
        α ας
        η ης
        ω ως""",
    "pl": _SLAVIC_LATIN,
    "cs": _SLAVIC_LATIN + _CZECH,
    "de": """
        - en n s es er ern
        e en n
        er ern ers""",
    "fi": "- n a ä ssa ssä sta stä lla llä lle lta ltä ksi na nä in an en ta tä ttä",
}
# A memory often begins with a verb: Bakes, baked, baking.
_VERB_ENDING = re.compile(r"(?:es|(?<!s)s|ed|ing|e|d)$")
_CONJUGATED = re.compile(r"(?:(?<!s)s|ed|ing)$")
# Names that end like a verb, of another word: no jam is a form of James.
_NAMES_LIKE_VERBS = frozenset(
    ["bates", "charles", "giles", "hayes", "hodges", "hughes", "james", "jones", "miles", "rhodes"]
)
_MIN_STEM, _MIN_CYRILLIC_STEM, _MIN_GERMAN_STEM = 3, 2, 4
_MAX_ENDING = 5

_CYRILLIC = re.compile("[\u0400-\u052f]")
_GREEK = re.compile("[\u0370-\u03ff]")
# Hebrew and Arabic join short words to the front of a name.
_PREFIXING = re.compile("[\u05d0-\u05ea\u0600-\u06ff]")


def _ending_pairs(lines: str) -> frozenset[tuple[str, str]]:
    paradigms = [
        [fold(ending) if ending != "-" else "" for ending in line.split()]
        for line in lines.strip().splitlines()
    ]
    return frozenset((a, b) for paradigm in paradigms for a in paradigm for b in paradigm)


_PAIRS: Mapping[str, frozenset[tuple[str, str]]] = {
    language: _ending_pairs(lines) for language, lines in _PARADIGMS.items()
}
_NO_PAIRS: frozenset[tuple[str, str]] = frozenset()


def is_form_of(name: str, words: Iterable[str], language: str) -> bool:
    """Tell whether one of the folded ``words`` is a form of the folded ``name``.

    ``language`` is the code of the words' language: it matters in Latin script only.
    """
    if _PREFIXING.match(name):
        return any(is_joined_form_of(name, word) for word in words)
    pairs, min_stem = _rules_for(name, language)
    if not pairs:
        return False
    start = name[:min_stem]
    return any(_same_name(name, word, pairs, min_stem) for word in words if word.startswith(start))


def is_verb_form_of(verb: str, words: Iterable[str]) -> bool:
    """Tell whether one of the folded ``words`` is another form of an English verb.

    ``verb`` itself must end like one (bakes, baking, baked): Simone is not a form of Simon.
    """
    if verb in _NAMES_LIKE_VERBS or _CONJUGATED.search(verb) is None:
        return False
    stem = _verb_stem(verb)
    return any(_verb_stem(word) == stem for word in words if word.startswith(stem[:_MIN_STEM]))


def _verb_stem(verb: str) -> str:
    """Return a folded word without the endings of English verbs: ``baking`` gives ``bak``."""
    stem = _VERB_ENDING.sub("", verb)
    if len(stem) < _MIN_STEM:
        return verb
    if stem[-1] == stem[-2] and stem != verb:
        return stem[:-1]
    return stem[:-1] + "y" if stem.endswith("i") else stem


def _rules_for(name: str, language: str) -> tuple[frozenset[tuple[str, str]], int]:
    if _CYRILLIC.match(name):
        return _PAIRS["cyrillic"], _MIN_CYRILLIC_STEM
    if _GREEK.match(name):
        return _PAIRS["greek"], _MIN_STEM
    return _PAIRS.get(language, _NO_PAIRS), _MIN_GERMAN_STEM if language == "de" else _MIN_STEM


def _same_name(name: str, word: str, pairs: frozenset[tuple[str, str]], min_stem: int) -> bool:
    shortest = min(len(name), len(word))
    for stem in range(max(min_stem, max(len(name), len(word)) - _MAX_ENDING), shortest + 1):
        if name[:stem] != word[:stem]:
            return False
        if (name[stem:], word[stem:]) in pairs:
            return True
    return False
