"""Why agents need somebody, in words, and what to do."""

from typing import NamedTuple

# Worst first.
LEVELS = ("bad", "warn", "calm", "ok")


class CauseWords(NamedTuple):
    level: str
    phrase: str
    advice: str


# Why agents need attention, and what to do.
CAUSES = {
    "failed": CauseWords(
        "bad", "with a failed session", "Look at a session to see why, then refine it again."
    ),
    "given_up": CauseWords(
        "bad",
        "with lost conversations",
        "They could not be read to the end, and are gone. Operations lists the errors.",
    ),
    "rolled_back": CauseWords(
        "warn",
        "rolled back",
        "More was removed than a session may take, so all of it was undone. Trying again would "
        "likely end the same: ask for access to the session, to read what was tried.",
    ),
    "stuck": CauseWords(
        "warn",
        "stuck above the budget",
        "Their last sessions had no effect. Raise the budget, or ask for access to see why.",
    ),
    "over_budget": CauseWords(
        "warn",
        "over budget",
        "Automatic sessions go on asking, a part at a time. Raise a budget that is too small.",
    ),
    "declined": CauseWords(
        "calm",
        "declined",
        "Only exact duplicates went. They are asked again at the next slot.",
    ),
}
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
