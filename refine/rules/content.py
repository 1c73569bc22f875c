"""Which text may be stored: checks for every way in, and the limits of stored texts."""

import re
import unicodedata
from collections.abc import Iterable, Mapping
from typing import Literal, get_args

from refine.errors import InvalidValue

MAX_CONTENT_CHARACTERS = 10_000
MAX_PROMPT_CHARACTERS = 10_000
MAX_NAME_CHARACTERS = 200
MAX_AGENT_NAME_CHARACTERS = 80
MAX_SLUG_CHARACTERS = 60
MAX_EMAIL_CHARACTERS = 254
MAX_SUMMARY_CHARACTERS = 2_000
# The figures of a session, and the summary behind them.
MAX_STORED_SUMMARY_CHARACTERS = 12_000
MAX_QUERY_CHARACTERS = 500
MAX_REPLY_CHARACTERS = 10_000

# The average of English text.
_CHARACTERS_PER_TOKEN = 4
# In scripts without spaces between words a character takes a whole token: Chinese, kana, Thai, Lao,
# Khmer, Burmese. Korean has spaces.
UNSPACED_SCRIPTS = (
    "\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\uff66-\uff9f\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\U00020000-\U0003ffff\u0e00-\u0eff\u1000-\u109f\uaa60-\uaa7f\ua9e0-\ua9ff\u1780-\u17ff"
)

Tag = Literal["audio", "somatic", "voice", "relational"]
TAGS: tuple[Tag, ...] = get_args(Tag)
IMMUTABLE_TAGS = frozenset({"audio", "somatic", "voice"})

_UNSPACED = re.compile(f"[{UNSPACED_SCRIPTS}]+")
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
# Includes overrides of the text direction, which make a name look like another.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")

# The end of an answer that was cut to be stored.
_CUT_MARK = " … [cut here]"

_LABEL = "[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_EMAIL = re.compile(rf"[a-z0-9._%+-]{{1,64}}@(?:{_LABEL}\.)*{_LABEL}")

# Blank characters outside category Cf.
_BLANKS = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0") | frozenset(
    map(chr, range(0xE0100, 0xE01F0))
)


def token_estimate(text: str) -> int:
    """Return a quarter of the characters, rounded up; each of a script without spaces is one."""
    spaced = len(text) if text.isascii() else len(_UNSPACED.sub("", text))
    return len(text) - spaced - (-spaced // _CHARACTERS_PER_TOKEN)


def storable(text: object, *, field: str) -> str:
    """Return ``text`` unchanged; InvalidValue for other types, NUL and lone surrogates."""
    if not isinstance(text, str):
        raise InvalidValue(f"{field} must be text")
    if (problem := unstorable_reason(text)) is not None:
        raise InvalidValue(f"{field} {problem}")
    return text


def storable_or_none(field: str, text: object) -> str | None:
    return None if text is None else storable(text, field=field)


def reply_text(field: str, text: object) -> str | None:
    """Return a model's answer as stored: cut, and marked, if it is too long; None stays None."""
    reply = storable_or_none(field, text)
    if reply is None or len(reply) <= MAX_REPLY_CHARACTERS:
        return reply
    return reply[: MAX_REPLY_CHARACTERS - len(_CUT_MARK)] + _CUT_MARK


def unstorable_reason(text: str) -> str | None:
    if (found := _UNSTORABLE.search(text)) is None:
        return None
    if found.group() == "\x00":
        return "must not contain a NUL character"
    return "must be valid Unicode (it contains half of a surrogate pair)"


def sanitized(text: str) -> str:
    """Return ``text`` with each NUL and each lone surrogate replaced by U+FFFD."""
    return _UNSTORABLE.sub("\ufffd", text)


def bounded_text(text: object, *, field: str, limit: int) -> str:
    """Return ``text`` trimmed; 1 to ``limit`` characters (code points), or InvalidValue."""
    trimmed = storable(text, field=field).strip()
    if not trimmed:
        raise InvalidValue(f"{field} must not be empty")
    if len(trimmed) > limit:
        raise InvalidValue(
            f"{field} has {len(trimmed):,} characters; at most {limit:,} are allowed"
        )
    return trimmed


def memory_content(text: object) -> str:
    """Return a memory's content as stored: trimmed, bounded and not empty; or InvalidValue."""
    return bounded_text(text, field="content", limit=MAX_CONTENT_CHARACTERS)


def prompt_text(field: str, text: object) -> str | None:
    if text is None or not storable(text, field=field).strip():
        return None
    return bounded_text(text, field=field, limit=MAX_PROMPT_CHARACTERS)


def one_line(text: object, *, field: str, limit: int = MAX_NAME_CHARACTERS) -> str:
    """Return a trimmed line without control characters: names appear in prompts and logs."""
    name = bounded_text(text, field=field, limit=limit)
    if _CONTROL.search(name):
        raise InvalidValue(f"{field} must be one line without control characters")
    return name


def visible_name(text: object, *, field: str, limit: int = MAX_NAME_CHARACTERS) -> str:
    """Return ``one_line`` without invisible characters, which make two names look the same."""
    name = one_line(text, field=field, limit=limit)
    if any(unicodedata.category(each) == "Cf" or each in _BLANKS for each in name):
        raise InvalidValue(f"{field} must not contain invisible characters")
    return name


def email_address(text: object) -> str:
    """Return a plain address in lower case; InvalidValue for forms that could hide words."""
    address = visible_name(text, field="email", limit=MAX_EMAIL_CHARACTERS).lower()
    if not _EMAIL.fullmatch(address):
        raise InvalidValue("email must be an address such as ada@example.org")
    return address


def known_tags(tags: object) -> list[str]:
    if isinstance(tags, str | bytes | Mapping) or not isinstance(tags, Iterable):
        raise InvalidValue(f"tags must be a list of: {', '.join(TAGS)}")
    given = list(tags)
    unknown = [tag for tag in given if tag not in TAGS]
    if unknown:
        raise InvalidValue(f"unknown tag; allowed tags: {', '.join(TAGS)}")
    return [tag for tag in TAGS if tag in given]


def comparable(content: str) -> str:
    """Return the form in which exact duplicates are equal; keys and codes keep their case."""
    return " ".join(map(_in_one_case, unicodedata.normalize("NFC", content).split()))


def _in_one_case(word: str) -> str:
    lower = word.lower()  # most words are in it, and looking at each letter takes long
    if word == lower:
        return word
    letters = [each for each in word if each.isalpha()]
    has_digit = any(each.isnumeric() for each in word)
    return word if has_digit or any(each != each.lower() for each in letters[1:]) else lower
