"""Why agents need somebody, in words, and what to do."""

import tomllib
from pathlib import Path
from typing import NamedTuple

# Worst first.
LEVELS = ("bad", "warn", "calm", "ok")


class CauseWords(NamedTuple):
    level: str
    phrase: str
    advice: str


_TABLE = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
CAUSES = {name: CauseWords(**words) for name, words in _TABLE.items()}
_KEY = "Check `OPENROUTER_API_KEY` and its credit, then refine them again."
_PASSES = "This usually passes: automatic sessions are tried again, up to 3 times."
_MODEL = "Check the models in the agents' settings, then refine them again."
# By the kind of error of failed sessions.
ERROR_ADVICE = {
    **dict.fromkeys(("no_key", "unauthorized", "out_of_credit", "forbidden"), _KEY),
    **dict.fromkeys(("connection", "timeout", "deadline", "rate_limited"), _PASSES),
    **dict.fromkeys(("no_endpoint", "model_name", "other_model", "no_rehearsal"), _MODEL),
    "worker_lost": "Check that the workers run, then refine them again.",
}


def cause_in_words(cause: str) -> str:
    kind, _, error = cause.partition(":")
    phrase = CAUSES[kind].phrase if kind in CAUSES else "for any reason"
    return f"{phrase}: {spaced(error)}" if error else phrase


def advice_on(cause: str) -> str:
    kind, _, error = cause.partition(":")
    return ERROR_ADVICE.get(error, CAUSES[kind].advice)


def spaced(name: str) -> str:
    return name.replace("_", " ")
