"""`python -m tests.landed`: list new migrations with digests of their texts, in tests/landed.txt.

A migration that is listed never changes: databases were made by it. Until the first release, remove
the file before.
"""

import re
from hashlib import sha256
from pathlib import Path

LIST = Path(__file__).with_name("landed.txt")
VERSIONS = Path(__file__).parents[1] / "migrations" / "versions"


def listed() -> list[str]:
    return LIST.read_text().splitlines() if LIST.exists() else []


def written() -> list[str]:
    """The line of each migration: its id and the digest of its text."""
    return sorted(_line_of(file.read_text(encoding="utf-8")) for file in VERSIONS.glob("*.py"))


def _line_of(text: str) -> str:
    found = re.search(r'^revision = "(\w+)"$', text, re.MULTILINE)
    assert found is not None, text[:200]
    return f"{found[1]} {sha256(text.encode()).hexdigest()}"


def main() -> None:
    ids = {line.split()[0] for line in listed()}
    new = [line for line in written() if line.split()[0] not in ids]
    LIST.write_text("".join(f"{line}\n" for line in sorted([*listed(), *new])))


if __name__ == "__main__":
    main()
