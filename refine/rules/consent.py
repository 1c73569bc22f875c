"""What counts as an answer to a question for consent: a plain YES or NO, and nothing else.

Whatever is unclear is asked back, which takes one call; a yes that was none would open everything.
"""

import re
import unicodedata
from enum import Enum


class Answer(Enum):
    """What a reply says, or why it is not an answer."""

    YES = "the agent agreed"
    NO = "the agent declined"
    CUT = "the reply was cut off"
    CALL = "the model called the tool instead"
    NO_WORDS = "the reply had no words"
    NEITHER = "the reply did not begin with YES or NO"
    BOTH = "the reply said YES, and also no or not"
    CONDITION = "the reply said YES, and then a condition or a limit"
    DOUBTFUL = "the reply said YES, with marks or letters that can mean something else"


# Where thoughts begin and end that a server left in the text: <think>, </think>, [THINK],
# <seed:think>, ◁/think▷, and with other words.
REASONING_TAG = re.compile(
    r"[<\[◁]\s?(?P<closes>/?)\s?(?:\w{1,20}:)?"
    r"(?:think|thinking|thoughts?|reason|reasoning|analysis|reflection|scratchpad)"
    r"\b[^<>\[\]◁▷]{0,200}[>\]▷]",
    re.IGNORECASE,
)
# The question's own words, repeated before an answer.
_QUESTION = re.compile(r"[\W_]*yes[\W_]+or[\W_]+no[\W_]*?[?:]", re.IGNORECASE)
_WORD = re.compile(r"[^\W_]+(?:['’\-][^\W_]+)*")
_PART_OF_WORD = re.compile(r"[^\W_]+(?:['’]t\b)?")
_LETTER = re.compile(r"[^\W\d_]")
# Crossed out, left unticked, put in question, in a tag; letters of which the words are not known.
_DOUBTFUL = re.compile(r"~~|[<?？؟=≠¬❌✗✘✖🚫⛔👎☐□▢○◯⬜]|\[\s*\]|\(\s*\)|[^\W\d_A-Za-zÀ-ɏ]")
# Behind a yes that is only quoted, if more words follow.
_CLOSING = "\"'`“”‘’„«»)]}>"

_NEGATIONS = frozenset(
    """
    no not never none nothing nobody nowhere neither nor cannot cant dont wont without nope nah nay
    refuse refuses refused refusal decline declines declined reject deny disagree object objection
    objections oppose withhold withdraw rather against unwilling reluctant hesitate uncomfortable
    sorry regret unfortunately afraid wrong false mistake joke stop skip cancel postpone 0 zero
    nein nicht nichts kein keine keinen keiner nie niemals ohne leider lieber ablehne verweigere
    non ne pas jamais sans rien nunca jamás sin nada rechazo niego não nao jamais sem recuso nego
    mai senza rifiuto nee niet geen nooit zonder weiger nej inte aldrig utan nei ikke aldri uten
    nigdy bez odmawiam hayır hayir değil degil yok asla
    """.split()
)
_CONDITIONS = frozenset(
    """
    but only if unless except excepting exception exceptions exclude excluding exclusively provided
    providing condition conditions conditional conditionally conditioned assuming supposing however
    although though yet when whenever once until till before after whether either or vs versus
    depending depends subject just merely solely limit limits limited restrict restricted most
    maximum max minute minutes hour hours later tomorrow maybe perhaps possibly might long part
    parts partly partially some those ones about leave alone untouched must promise caveat instead
    reservation reservations
    aber nur wenn falls sofern solange außer ausser jedoch bedingung vorausgesetzt bis bevor nachdem
    oder vielleicht mais seulement uniquement si sauf tant jusque jusqu ou peut excepté pourvu pero
    solo sólo solamente únicamente salvo excepto siempre condición menos hasta cuando aunque quizás
    mas só somente apenas se exceto desde até quando talvez embora ma soltanto tranne purché eccetto
    però forse maar alleen als tenzij behalve mits tot wanneer misschien slechts men bara endast om
    utom förutsatt när kanske kun hvis medmindre ale tylko jeśli jeżeli oprócz chyba gdy ama fakat
    sadece yalnızca eğer ancak
    """.split()
)


def answer_in(text: str | None, *, is_cut: bool = False, is_call: bool = False) -> Answer:
    """Return what a reply says, by its first word; thoughts that leaked into it are cut off.

    A NO declines whatever follows. A YES is one only if nothing follows that denies or limits it,
    in the whole text. ``is_cut``: a limit or a filter ended it; ``is_call``: it calls a tool, too.
    """
    said = unicodedata.normalize("NFC", _without_reasoning(text or "")).replace("\ufe0f", "")
    if (question := _QUESTION.match(said)) is not None:
        said = said[question.end() :]
    first = _WORD.search(said)
    word = first.group().lower() if first is not None else ""
    if is_cut:
        return Answer.CUT
    if word == "no":
        return Answer.NO
    if is_call:
        return Answer.CALL
    if _LETTER.search(said) is None:
        return Answer.NO_WORDS
    if first is None or word != "yes":
        return Answer.NEITHER
    return _kind_of_yes(said, said[first.end() :])


def _kind_of_yes(said: str, rest: str) -> Answer:
    """Return what a reply says that begins with YES, and goes on with ``rest``."""
    words = {part.lower() for part in _PART_OF_WORD.findall(rest)}
    if not words.isdisjoint(_NEGATIONS) or any(word.endswith(("n't", "n’t")) for word in words):
        return Answer.BOTH
    if not words.isdisjoint(_CONDITIONS):
        return Answer.CONDITION
    is_quoted = bool(words) and rest[0] in _CLOSING
    is_hidden = any(unicodedata.category(each) in ("Mn", "Me", "Cf") for each in said)
    if is_quoted or is_hidden or _DOUBTFUL.search(said) is not None:
        return Answer.DOUBTFUL
    return Answer.YES


def _without_reasoning(text: str) -> str:
    """Return the text without thoughts in tags; nothing of it if they do not end.

    Where thoughts end that have not begun, all that stands before belongs to them.
    """
    kept: list[str] = []
    is_thinking, start = False, 0
    for tag in REASONING_TAG.finditer(text):
        if not is_thinking:
            kept.append(text[start : tag.start()])
            if tag["closes"]:
                kept.clear()
        is_thinking, start = not tag["closes"], tag.end()
    return "" if is_thinking else "".join(kept) + text[start:]
