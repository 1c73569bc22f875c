"""Names of models: which are rehearsed, and whether a reply comes from the model that was asked."""

import re
from typing import NamedTuple

# OpenRouter's choice among a model's providers; any other ``:tag``, such as a size on local
# servers, is part of the name.
_VARIANTS = "free|nitro|floor|extended|exacto|beta"
# A pattern of Python and of PostgreSQL alike.
VARIANT = rf":(?:{_VARIANTS})$"
_VARIANT = re.compile(VARIANT)
# ``thinking`` is a way of answering, with prices of its own.
_OPENROUTER_MODEL = re.compile(
    rf"[a-z0-9][\w.-]*/[a-z0-9][\w.-]*(?::(?:{_VARIANTS}|thinking))?", re.ASCII | re.IGNORECASE
)
# Names at which OpenRouter chooses the model, or sends what it reads elsewhere: aliases of the
# latest model, presets, routers, searching variants. No other server has such names, unless it
# hands them on to OpenRouter.
_NOT_ONE_MODEL = re.compile(
    r"^~|@preset/|(?:^|/)(?:openrouter/[^/]*|switchpoint/.*)$|:online(?!\w)", re.IGNORECASE
)
_MONTH_AND_DAY = r"(?:0[1-9]|1[0-2])-?(?:0[1-9]|[12]\d|3[01])"
_DATE = re.compile(
    rf"[-@](?:20\d\d-?{_MONTH_AND_DAY}|{_MONTH_AND_DAY}|2\d(?:0[1-9]|1[0-2]))(?![\w.-])"
)
# What may come from a provider into messages, logs and pages.
_SHOWN_NAME = re.compile(r"[A-Za-z0-9~@][A-Za-z0-9._:/@+-]{0,99}")
_SEPARATORS = re.compile(r"[-_.@/: ]+")


# Names that the rehearsal model answers to.
REHEARSAL_PREFIX = "rehearsal/"


def is_rehearsal_model(model_id: str) -> bool:
    return model_id.startswith(REHEARSAL_PREFIX)


def names_one_model(model_id: str, *, at_openrouter: bool) -> bool:
    """Tell whether a name leads to one model; OpenRouter's rules hold for names of its form."""
    if _NOT_ONE_MODEL.search(model_id):
        return False
    has_its_form = at_openrouter or model_id.count("/") == 1
    return not has_its_form or _OPENROUTER_MODEL.fullmatch(model_id) is not None


def without_variant(model_id: str) -> str:
    """Return the name without the choice among its providers: ``a/b`` for ``a/b:nitro``."""
    return _VARIANT.sub("", model_id)


def is_readable(name: str) -> bool:
    return _SHOWN_NAME.fullmatch(name) is not None


def in_words(name: str | None) -> str:
    if name is None or not is_readable(name):
        return "a model with an unreadable name"
    return name


class _Name(NamedTuple):
    author: str
    words: list[str]
    numbers: list[str]
    date: str | None


def is_same_model(pinned: str, answered: str | None) -> bool:
    """Tell whether ``answered`` names the model ``pinned``; None (not named) counts as a yes.

    A dated or canonical name is the same model: ``anthropic/claude-4-sonnet-20250522`` is
    ``anthropic/claude-sonnet-4``, ``gpt-4o-2024-08-06`` is ``openai/gpt-4o``, ``gpt-4-0613`` is
    ``openai/gpt-4``. Words may change places, numbers may not: ``gpt-4.5`` is not ``gpt-5.4``. Only
    its own date matches a dated pin. A missing author matches any.
    """
    if answered is None:
        return True
    asked, replied = _parse(pinned), _parse(answered)
    if asked.author and replied.author and asked.author != replied.author:
        return False
    if asked.date is not None and asked.date != replied.date:
        return False
    return (asked.words, asked.numbers) == (replied.words, replied.numbers)


def _parse(name: str) -> _Name:
    author, _, bare = _VARIANT.sub("", name.casefold()).rpartition("/")
    date = _DATE.search(bare)
    if date is not None:
        bare = bare[: date.start()] + bare[date.end() :]
    parts = [part for part in _SEPARATORS.split(bare) if part]
    numbers = [part for part in parts if any(map(str.isdigit, part))]
    words = sorted(part for part in parts if part not in numbers)
    day = date.group().strip("-@").replace("-", "") if date is not None else None
    return _Name(author, words, numbers, day)
