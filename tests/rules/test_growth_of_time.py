"""What a model's server or a form sends takes time in proportion to its length.

A rule that goes back over what it has read takes the square of that time: half a minute for what
fits into one answer.
"""

import json
import time
from collections.abc import Callable
from contextlib import suppress

import pytest

from refine.llm.answered_json import answered_json
from refine.rules.consent import answer_in
from refine.rules.context import tokens_at_most
from refine.rules.ids import parse_ids
from refine.rules.model_names import in_words, is_same_model
from refine.rules.personal import looks_personal
from refine.rules.tool_arguments import parse_arguments

TIMES = 8
# Between 8, of what is linear, and 64, of what is quadratic.
MOST = 3 * TIMES
# Less than this cannot be measured on a busy machine.
FLOOR_SECONDS = 0.002

RULES: dict[str, Callable[[str], object]] = {
    "answer_in": answer_in,
    "answer_in, after a yes": lambda text: answer_in(f"YES {text}"),
    "parse_ids": parse_ids,
    "parse_arguments": parse_arguments,
    "in_words": in_words,
    "is_same_model": lambda text: is_same_model("a/b", text),
    "tokens_at_most": tokens_at_most,
    "looks_personal": looks_personal,
    "answered_json": lambda text: answered_json(text.encode()),
    "an array": lambda text: answered_json(f"[{text}1]".encode()),
    "arguments": lambda text: parse_arguments(json.dumps({"content": text})),
}
PIECES = [
    *(
        "\\",
        "\\\\n",
        "<a",
        "<",
        "&a",
        "&",
        "yes ",
        "yes or no ",
        "<think>",
        "</think>",
        "(",
        "~~",
        "_",
        "-",
    ),
    *("1", "1,", "9.", "[", '{"a":', "{},", '"\\ud800",', "NaN,", "A", "a-", ":", "'", "\n", "é"),
    *("x@", ".a", "+1"),
]


def seconds_of(work: Callable[[str], object], text: str) -> float:
    taken = []
    for _ in range(3):
        began = time.process_time()
        with suppress(ValueError):  # InvalidValue among them: it was read, and refused
            work(text)
        taken.append(time.process_time() - began)
    return max(min(taken), FLOOR_SECONDS)


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_time_grows_with_the_length(rule: Callable[[str], object]) -> None:
    for piece in PIECES:
        text = (piece * 4_000)[:4_000]
        assert seconds_of(rule, text * TIMES) < MOST * seconds_of(rule, text), piece
