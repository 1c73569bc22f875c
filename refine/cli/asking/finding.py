"""One line of advice."""

from dataclasses import dataclass
from typing import Literal

Mark = Literal["ok", "warn", "fix"]


@dataclass(frozen=True)
class Finding:
    """What was found, whether something must be done, and what."""

    name: str
    mark: Mark
    text: str
