"""What the requirements files pin."""

from pathlib import Path
from typing import NamedTuple

from packaging.requirements import Requirement

ROOT = Path(__file__).parent.parent.parent
# What a server installs; what `make up` does, with the embedded servers; what tests need too.
RUNTIME, LOCAL = ROOT / "requirements.txt", ROOT / "requirements-local.txt"
DEVELOPMENT = ROOT / "requirements-dev.txt"


class Locked(NamedTuple):
    """One entry of a requirements file: what is required, and the rest, its options."""

    requirement: Requirement
    options: list[str]

    @property
    def name(self) -> str:
        return self.requirement.name

    @property
    def is_for_this_machine(self) -> bool:
        return self.requirement.marker is None or self.requirement.marker.evaluate()


def locked_in(file: Path) -> list[Locked]:
    """Return the entries; a line that is no requirement is an error."""
    text = file.read_text().replace("\\\n", " ")
    lines = [line.strip() for line in text.splitlines()]
    return [_parsed(line) for line in lines if line and not line.startswith("#")]


def _parsed(line: str) -> Locked:
    wanted, *options = line.split(" --")
    return Locked(Requirement(wanted.strip()), [f"--{option.strip()}" for option in options])
