"""Whether a reply comes from the model that was asked."""

import re

_DATE = re.compile(r"[-@](?:20\d{6}|(?:20\d\d-)?(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01]))\b")
_SEPARATORS = re.compile(r"[-_.@/ ]+")


def is_same_model(pinned: str, answered: str | None) -> bool:
    """Tell whether ``answered`` names the model ``pinned``; a reply that names none is taken as it.

    A dated or canonical name counts as the model: ``anthropic/claude-4-sonnet-20250522`` is
    ``anthropic/claude-sonnet-4``, ``gpt-4o-2024-08-06`` is ``openai/gpt-4o``,
    ``qwen/qwen3-8b-04-28`` is ``qwen/qwen3-8b``. A dated pin is not answered by another date, nor
    by the undated name, and no model by another author's.
    """
    if answered is None or answered.casefold() == pinned.casefold():
        return True
    if _author(pinned) and _author(answered) and _author(pinned) != _author(answered):
        return False
    if _DATE.search(pinned):
        return _parts(pinned, dated=True) == _parts(answered, dated=True)
    return _parts(pinned) == _parts(answered)


def _author(name: str) -> str:
    return name.casefold().rpartition("/")[0]


def _parts(name: str, *, dated: bool = False) -> list[str]:
    """The words of a model's name without author, variant (``:free``) and date, sorted."""
    bare = name.casefold().rpartition("/")[2].partition(":")[0]
    if not dated:
        bare = _DATE.sub("", bare)
    return sorted(part for part in _SEPARATORS.split(bare) if part)
