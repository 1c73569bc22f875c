"""A second reading of edits by the agent's own model, which knows nothing of the session."""

from collections.abc import Sequence

from refine import clock, prompts
from refine.llm.messages import Message, Reply, user_message
from refine.models import Agent
from refine.rules.consent import without_reasoning
from refine.rules.second_reading import Case, Verdict, answers_in, verdicts_in
from refine.tools.calls import function_definition

_WORDS = {"type": "array", "items": {"type": "string"}}
_ANSWER = {
    "type": "object",
    "properties": {"case": {"type": "integer"}, **dict.fromkeys(Verdict._fields, _WORDS)},
    "required": ["case", *Verdict._fields],
}

DEFINITION = function_definition(
    "second_reading",
    "Your reading of each case.",
    {"cases": {"type": "array", "items": _ANSWER}},
)


def reading_of(agent: Agent, cases: Sequence[Case], *, is_repeated: bool) -> list[Message]:
    """Return the messages that ask for it; ``is_repeated``: an answer could not be used."""
    entries = [prompts.as_line(case.as_entry(n)) for n, case in enumerate(cases, start=1)]
    shown = prompts.render("second_reading_cases", cases=entries, is_repeated=is_repeated)
    system = agent.first_message(prompts.render("second_reading", today=f"{clock.now():%Y-%m-%d}"))
    return [{"role": "system", "content": system}, user_message(shown)]


def verdicts_of(reply: Reply, cases: int) -> list[Verdict | None]:
    """Return the verdicts in a reply, given by a call or in words; None for one of no use."""
    called = [
        each.arguments["cases"] for each in reply.tool_calls if each.arguments.keys() == {"cases"}
    ]
    answers = [answer for each in called if isinstance(each, list) for answer in each]
    return verdicts_in(answers or answers_in(without_reasoning(reply.text or "")), cases)
