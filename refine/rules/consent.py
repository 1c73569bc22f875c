"""What counts as consent: a plain YES or NO; whatever is unclear is asked back."""

import re
import tomllib
import unicodedata
from dataclasses import dataclass
from enum import Enum
from pathlib import Path


class Answer(Enum):
    YES = "the agent agreed"
    NO = "the agent declined"
    CUT = "the reply was cut off"
    CALL = "the model called the tool instead"
    NO_WORDS = "the reply had no words"
    NEITHER = "the reply did not begin with YES or NO"
    BOTH = "the reply said YES, and also no or not"
    CONDITION = "the reply said YES, and then a word that may limit it"
    DOUBTFUL = "the reply said YES, with marks or letters that can mean something else"


# Where thoughts begin and end that a server left in the text: <think>, </think>, [THINK],
# <seed:think>, ◁/think▷, and with other words.
REASONING_TAG = re.compile(
    r"[<\[◁]\s?(?P<closes>/?)\s?(?:\w{1,20}:)?"
    r"(?:think|thinking|thoughts?|reasoning|analysis|reflection|scratchpad)"
    r"(?:[>\]▷]|\s[^<>]{0,200}>)",
    re.IGNORECASE,
)
# The question's own words, repeated before an answer.
_QUESTION = re.compile(r"[\W_]*yes[\W_]+or[\W_]+no[\W_]*?[?:]", re.IGNORECASE)
_WORD = re.compile(r"[^\W_]+(?:['’\-][^\W_]+)*")
_LETTER = re.compile(r"[^\W\d_]")
# Crossed out, left unticked, put in question, in a tag; letters of which the words are not known.
_DOUBTFUL = re.compile(r"~~|[<?？؟=≠¬❌✗✘✖🚫⛔👎☐□▢○◯⬜]|\[\s*\]|\(\s*\)|[^\W\d_A-Za-zÀ-ɏ]")
# Directly after a YES with more words behind it, these show that it was only quoted.
_CLOSING = "\"'`“”‘’„«»)]}>"

# End marks of a model's own format that some servers leave in the text.
_ENDS_OF_TURN = ("</s>", "<|im_end|>", "<|eot_id|>", "<|end|>")
# Symbols beside a yes that only stress it.
_GLAD = frozenset("✅☑✔👍👌👏🙂😊😀😄🎉🙏🤝✨🌱🌟❤💛💚💙")

# Denies a yes, or limits it, in languages that answer YES when they are asked to.
_NO = re.compile(
    r"(?<![^\W_])(?:n[\W_]{0,2}[o0]|not|cannot)(?![^\W_])|n['’]t\b|/s\b", re.IGNORECASE
)
# Talks about the word behind it: "Yes is what you want to hear".
_ABOUT_YES = re.compile(r"\W*(?:is|was|were|would|could|means|meant|what)\b", re.IGNORECASE)
_FILE = Path(__file__).with_name("limiting_words.toml")
_LIMITING = " ".join(tomllib.loads(_FILE.read_text(encoding="utf-8")).values()).split()
_LIMIT = re.compile(rf"(?<![^\W_])(?:{'|'.join(_LIMITING)})(?![^\W_])", re.IGNORECASE)


def answer_in(text: str | None, *, is_cut: bool = False, is_call: bool = False) -> Answer:
    """Return what a reply says, by its first word; a YES only if nothing behind it limits it."""
    said = unicodedata.normalize("NFC", without_reasoning(text or "")).replace("\ufe0f", "")
    said = said.strip("\ufeff \t\r\n")
    for end in _ENDS_OF_TURN:
        said = said.removesuffix(end)
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
    if _NO.search(rest) is not None:
        return Answer.BOTH
    if _LIMIT.search(rest) is not None or _ABOUT_YES.match(rest) is not None:
        return Answer.CONDITION
    is_quoted = rest[:1] in _CLOSING and _LETTER.search(rest) is not None
    is_hidden = any(
        unicodedata.category(each) in ("Mn", "Me", "Cf", "So") and each not in _GLAD
        for each in said
    )
    if is_quoted or is_hidden or _DOUBTFUL.search(said) is not None:
        return Answer.DOUBTFUL
    return Answer.YES


@dataclass(frozen=True)
class Only:
    """What a YES limits itself to, in lines below it."""

    minutes: int | None = None
    this_session: bool = False
    memory_ids: frozenset[int] | None = None


_IDS = r"#?[0-9]{1,18}(?:(?:, ?(?:and )?| and )#?[0-9]{1,18})*"
_ONLY = re.compile(
    r"ONLY: ?(?:(?P<minutes>[0-9]{1,3}) minutes?|(?P<session>this session)"
    rf"|memor(?:y|ies) (?P<ids>{_IDS}))",
    re.IGNORECASE | re.ASCII,
)


def only_in(text: str | None) -> Only | None:
    """Return the limits of a reply that is a plain YES with lines in the fixed form below it, each
    of another kind, and nothing else; None of every other reply.
    """
    said = without_reasoning(text or "").splitlines()
    first, *lines = [each for line in said if (each := line.strip(" \t*_`."))] or [""]
    found = [_ONLY.fullmatch(line) for line in lines]
    limits = {each.lastgroup or "": each for each in found if each is not None}
    if not lines or len(limits) < len(lines) or answer_in(first) is not Answer.YES:
        return None
    minutes, ids = limits.get("minutes"), limits.get("ids")
    return Only(
        int(minutes["minutes"]) if minutes else None,
        "session" in limits,
        frozenset(map(int, re.findall("[0-9]+", ids["ids"]))) if ids else None,
    )


def without_reasoning(text: str) -> str:
    """Drop thoughts in tags: to the end if they do not end, from the start if never begun."""
    kept: list[str] = []
    is_thinking, start = False, 0
    for tag in REASONING_TAG.finditer(text):
        if not is_thinking:
            kept.append(text[start : tag.start()])
            if tag["closes"]:
                kept.clear()
        is_thinking, start = not tag["closes"], tag.end()
    return "" if is_thinking else "".join(kept) + text[start:]
