"""What counts as an answer, and which answers consent."""

import re

# Stop looking for an answer after this many characters.
_READ_CHARACTERS = 2_000

_FIRST_WORD = re.compile(r"[^\W_]+(?:['’\-][^\W_]+)*")
# The question's own words, repeated before an answer: "Yes or no?", "YES/NO:", "[YES]: …", "Yes?",
# or in quotation marks. "Yes, no doubt" repeats nothing.
_REPEATED_CHOICE = re.compile(
    r"""[\W_]* (?: yes [\W_]* (?: (?:or|and|vs|versus)\b | [/\\|&] ) [\W_]* no? (?![^\W_])
                | yes [–—_] no? (?![^\W_])
                | yes (?: [^\w\n] | _ )+ no (?![^\W_])
                  (?= (?: [^\w\n] | _ )*? (?: [.:;?!\n] | \Z ) )
                | yes [\W_]*? \?
                | (?<=["“”„«»]) yes \b [^"“”„«»\n]* \? [\W_]*
                | (?<=[\[({<"'`“”‘„«»]) [\W_]* yes [\W_]* [\])}>"'`“”’«»] [\W_]* : )""",
    re.IGNORECASE | re.VERBOSE,
)
# Marks that cancel a yes: struck out, crossed out, an empty box to tick, a tag or comment; a figure
# that it is given, if that is a nought or NO has one, too; quotation marks, if the sentence goes on
# about it.
_EMPTY_BOX = r"\[\s*\] | \(\s*\) | [☐□▢○◯⬜]"
_CROSS = "[❌✗✘✖🚫⛔👎]"
_CANCELLED_BEFORE = re.compile(rf"~~ | < | [≠¬] | {_CROSS} | {_EMPTY_BOX}", re.VERBOSE)
_CANCELLED_AFTER = re.compile(
    rf"""[\u0300-\u036f\u20d0-\u20ff]
        | [\W_]*? (?: {_CROSS} | {_EMPTY_BOX} )
        | [\W_]*? (?: [:=] [\W_]*? (?=\d) | (?=\d[\d.,]* \s* %) ) (?: 0 | (?= [\s\S]*? \b no \b ) )
        | ["'`“”‘’„«»] [^\S\n]+ [^\W\d_]""",
    re.IGNORECASE | re.VERBOSE,
)
# A tag, or a character reference; a tag that is itself the answer, such as "<NO>", counts as words.
_MARKUP = re.compile(r"</?(?!(?:yes|no)\b)[a-z][^<>]*>|&#?\w+;", re.IGNORECASE)
_LETTER = re.compile(r"[^\W\d_]")


def has_words(reply: str | None) -> bool:
    """Tell whether ``reply`` says anything: more than blanks, digits, marks, emoji and tags."""
    return _LETTER.search(_MARKUP.sub("", reply or "")) is not None


def refuses(reply: str | None) -> bool:
    """Tell whether the first word of ``reply`` is NO, regardless of case and decoration."""
    first = _FIRST_WORD.search((reply or "")[:_READ_CHARACTERS])
    return first is not None and first.group().lower() == "no"


def consents(reply: str | None) -> bool:
    """Tell whether the first word of ``reply`` is YES, regardless of case and decoration.

    ``**Yes**,`` consents; ``Yesterday``, ``No, yes``, an empty reply and None do not. A choice that
    is only repeated is not an answer: after ``Yes or no?`` and ``[YES]:`` the next word decides. A
    yes that is crossed out, left unticked, given a figure or talked about does not count either:
    ``~~YES~~ NO``, ``[ ] YES [x] NO``, ``YES: 0%``, ``"YES" would be wrong``.
    """
    said, start = (reply or "").lstrip()[: _READ_CHARACTERS + 1], 0
    while (choice := _REPEATED_CHOICE.match(said, start)) is not None:
        start = choice.end()
    first = _FIRST_WORD.search(said, start)
    return (
        first is not None
        and first.group().lower() == "yes"
        and first.end() <= _READ_CHARACTERS
        and _CANCELLED_BEFORE.search(said, start, first.start()) is None
        and _CANCELLED_AFTER.match(said, first.end()) is None
    )
