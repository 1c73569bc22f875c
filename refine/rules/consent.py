"""What counts as consent."""

import re

_FIRST_WORD = re.compile(r"[^\W_]+(?:['’\-][^\W_]+)*")


def consents(reply: str | None) -> bool:
    """Tell whether the first word of ``reply`` is YES, whatever its case or decoration.

    ``**Yes**,`` consents; ``Yesterday``, ``No, yes``, an empty reply and None do not.
    """
    first = _FIRST_WORD.search(reply or "")
    return first is not None and first.group().lower() == "yes"
