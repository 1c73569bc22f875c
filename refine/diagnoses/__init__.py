"""What can be wrong with an installation, and what to do about it."""

import re
import tomllib
from pathlib import Path
from typing import NamedTuple, Self

DIAGNOSES = tomllib.loads(Path(__file__).with_name("diagnoses.toml").read_text(encoding="utf-8"))


class Finding(NamedTuple):
    """Something that is wrong here, by its code among the diagnoses."""

    code: str
    sentence: str
    remedy: str
    is_warning: bool

    def __str__(self) -> str:
        return f"{self.sentence}; {self.remedy}" if self.remedy else self.sentence

    @classmethod
    def of(cls, code: str, **facts: object) -> Self:
        about = DIAGNOSES[code]
        sentence, remedy = about["sentence"].format(**facts), about.get("remedy", "")
        return cls(code, sentence, remedy.format(**facts), about.get("is_warning", False))

    @classmethod
    def saying(cls, code: str, said: object) -> Self | None:
        """Return the finding that says this; None if that is None."""
        return None if said is None else cls.of(code, said=said)


def cause_of(service: str, said: str, sqlstate: str | None = None) -> str | None:
    """Return the code of what keeps a service away, by its error; None if that is not known."""
    for code, about in DIAGNOSES.items():
        if not code.startswith(service) or "words" not in about:
            continue
        if sqlstate == about.get("sqlstate", "") or re.search(about["words"], said):
            return code
    return None
