"""Tables of values that a rule must refuse."""

from collections.abc import Callable, Iterable
from typing import Any

from refine.errors import InvalidValue


def not_refused(
    rule: Callable[[Any], object], values: Iterable[Any], message: str = "", canary: str = "canary"
) -> list[str]:
    """Return the values that the rule accepts, refuses in other words, or quotes in its message."""
    return [_short(value) for value in values if not _is_refused(rule, value, message, canary)]


def _is_refused(rule: Callable[[Any], object], value: Any, message: str, canary: str) -> bool:
    try:
        rule(value)
    except InvalidValue as error:
        return message in str(error) and canary not in str(error)
    return False


def _short(value: Any) -> str:
    try:
        return repr(value)[:80]
    except ValueError:  # Python does not print an int of 5,000 digits
        return type(value).__name__


def cases(text: str) -> list[str]:
    """Return the values of a table written as one text, separated by ``|``."""
    return text.split("|")
