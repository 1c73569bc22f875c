"""`make budget`: the size of the repository, beside the limits in pyproject.toml."""

import re
import sys
import tomllib
from pathlib import Path

from tests.costly import SPENT

ROOT = Path(__file__).parents[1]


def lines_of_refine() -> int:
    files = (ROOT / "refine").rglob("*.py")
    return sum(len(file.read_text(encoding="utf-8").splitlines()) for file in files)


def glossary_terms() -> int:
    glossary = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (?!---)", glossary, re.MULTILINE)
    return len(rows) - len(re.findall(r"^\|[ -]*---", glossary, re.MULTILINE))


def cpu_seconds_of_quick_tests() -> int:
    """Of the last run of all tests; 0 if there was none."""
    return int(SPENT.read_text()) if SPENT.exists() else 0


def main() -> int:
    limits = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["refine"]["budget"]
    figures = {
        "lines-of-refine": lines_of_refine(),
        "glossary-terms": glossary_terms(),
        "cpu-seconds-of-quick-tests": cpu_seconds_of_quick_tests(),
    }
    for name, limit in limits.items():
        said = "over the budget" if figures[name] > limit else "within the budget"
        print(f"{name}: {figures[name]:,} of {limit:,}, {said}")
    return any(figures[name] > limit for name, limit in limits.items())


if __name__ == "__main__":
    sys.exit(main())
