"""Replies to the question for consent, each with its meaning: yes, no or asked again."""

import json
from pathlib import Path
from typing import Any

_HERE = Path(__file__).parent

# Those that are hard to tell: "reply", and what it is to a "session" and to a request for "access".
CASES: list[dict[str, str]] = [
    json.loads(line) for line in (_HERE / "consent_cases.jsonl").read_text().splitlines()
]
# More of them, by what they are.
REPLIES: dict[str, list[Any]] = json.loads((_HERE / "consent_replies.json").read_text())
