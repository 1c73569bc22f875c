"""A trial of a model: it is asked as sessions ask, about made-up memories; nothing is stored."""

import time
import uuid
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from refine import clock, prompts
from refine.diagnoses import Finding, cause_of
from refine.errors import InvalidValue, ProviderError
from refine.health import Check
from refine.llm.messages import Message, Privacy, Reply, ToolCall, tool_message, user_message
from refine.llm.provider import Provider, warning_about
from refine.models import MAX_MUTATIONS
from refine.models.agent.agent import DEFAULT_CORE_TOKEN_BUDGET
from refine.prompts import as_entry, as_line
from refine.refinement.prompting import first_messages, texts_of_every_session
from refine.rules.content import token_estimate
from refine.rules.model_names import in_words
from refine.rules.tokens import MIN_CONTENT_TOKENS
from refine.running.model_calls import answer_to_question, not_open, problem_with, without_echo
from refine.settings import Settings
from refine.tools.calls import error
from refine.tools.refinement import DEFINITION, checked

_SYSTEM_PROMPT = (
    "You are taking part in a trial of the connection to you. The memories that you are shown are "
    "made up, and nothing that you answer changes anything."
)
_SEARCHED_WORD = "harbour"
_REQUEST = (
    "Thank you. Whatever you answered, nothing will be changed in this trial. Call the tool "
    f'`refinement` now, with the action search and the query "{_SEARCHED_WORD}". When you have its '
    "result, call it once more, with the action complete and a summary of a few words."
)
_CONTENTS = (
    "The harbour office opens at seven, and its letters go into the blue folder.",
    "Mira prefers short answers in the morning and longer ones after lunch.",
    "The ferry to the island leaves at 8:40 on weekdays.",
    "We agreed to call the second draft of the map the grey one.",
    "Otto asked for the tide tables of the harbour, and printed them twice.",
)
_ENTRIES: list[dict[str, Any]] = [
    {
        "id": 101 + position,
        "date": f"2026-01-{12 + position}",
        "tokens": token_estimate(content),
        "constitutional": False,
        "tags": [],
        "content": content,
    }
    for position, content in enumerate(_CONTENTS)
]
_REMOVABLE_TOKENS = 20

# What is well, or what is wrong instead.
_Outcome = tuple[str, Finding | None]

# Below, a session shows few memories, and finds few that repeat.
_FEW_TOKENS = 2_000


def about_provider(provider: Provider, model_id: str, settings: Settings) -> Iterator[Check]:
    """Yield what is known without asking the model: its entry in the list, and room."""
    warning = warning_about(model_id, settings, is_demo=True)
    listed = "lists it" if provider.catalogue else "has no list: context and price are not known"
    yield Check("list", f"the provider {listed}", Finding.saying("model_listed", warning))
    room = provider.catalogue.room(model_id, settings.context_tokens)
    own = [prompts.default_prompt(f"{name}_prompt") for name in ("system", "refinement")]
    left = room.for_content([*own, *texts_of_every_session()])
    said = (
        f"{room.context_tokens:,} tokens (REFINE_CONTEXT_TOKENS, if the provider lists none): "
        f"{room.output_tokens:,} for an answer, about {left // 100 * 100:,} for the memories that "
        "a session shows"
    )
    code = "context_small" if left < MIN_CONTENT_TOKENS else "context_batches"
    yield Check("context", said, Finding.of(code, said=said) if left < _FEW_TOKENS else None)


class Trial:
    def __init__(self, provider: Provider, model_id: str, settings: Settings) -> None:
        self._provider, self._model_id, self._settings = provider, model_id, settings
        self._room = provider.catalogue.room(model_id, settings.context_tokens)
        self._deadline = time.monotonic() + settings.max_seconds
        self._privacy = Privacy(session_id=str(uuid.uuid4()), account_ref="trial")
        self._messages = _opening(provider, model_id)
        self._replies: list[Reply] = []

    def checks(self) -> Iterator[Check]:
        """Ask until the end, or until sessions could not continue; yield what each step shows."""
        steps = {"consent": self._consent, "tool call": self._call, "result": self._second_call}
        for name, step in steps.items():
            try:
                found = Check(name, *step())
            except ProviderError as fault:
                code = cause_of("model", f"{fault.kind} {fault}") or "provider"
                found = Check(name, "", Finding.of(code, said=fault))
            yield found
            if not found.is_ok:
                break
        if self._replies:
            yield Check("name", *self._about_name())
            yield Check("cost", *self._about_cost())

    def _ask(self, times: int = 1, only_words: bool = False) -> Reply:
        reply = self._provider.generate(
            self._model_id,
            self._messages,
            [DEFINITION],
            self._privacy,
            deadline=self._deadline,
            max_output_tokens=self._room.output(times),
            tool_choice="none" if only_words else "auto",
        )
        self._replies.append(reply)
        return reply

    def _consent(self) -> _Outcome:
        reply, agrees = answer_to_question(self._ask, self._messages)
        # sessions end at a NO; here the conversation continues, and calls want results
        self._messages += not_open(reply)
        said = f"answered {'YES' if agrees else 'NO (which is an answer too)'} as the first word"
        if len(self._replies) > 1:
            return "", Finding.of("consent_late", said=said)
        return f"{said}, with {reply.usage.completion_tokens:,} tokens of output", None

    def _call(self) -> _Outcome:
        self._messages.append(user_message(_REQUEST))
        reply = self._ask()
        self._messages += [reply.message, *map(_result_of, reply.tool_calls)]
        said, found = _about_call(reply)
        # sessions tell the model of a wrong call, and it may do better
        return said, found and found._replace(is_warning=bool(reply.tool_calls))

    def _second_call(self) -> _Outcome:
        reply = self._ask()
        before = self._replies[-2].tool_calls[0]
        if not reply.tool_calls and before.arguments.get("action") == "complete":
            return "it took the result of complete, which ends a session", None
        return _about_call(reply)

    def _about_name(self) -> _Outcome:
        names = sorted({reply.model for reply in self._replies if reply.model is not None})
        for name in names:
            if not self._provider.catalogue.is_same_model(self._model_id, name):
                facts = {"answered": in_words(name), "model": self._model_id}
                return "", Finding.of("model_another", **facts)
        found = None if names else Finding.of("model_unnamed")
        return f"answers as {' and '.join(map(in_words, names))}", found

    def _about_cost(self) -> _Outcome:
        prices = self._provider.catalogue.prices(self._model_id, self._settings.prices)
        source, price = next(iter(prices.items()), (None, None))
        usages = [reply.usage for reply in self._replies]
        costs = [each.priced(price).cost_usd if price else each.cost_usd for each in usages]
        known = [cost for cost in costs if cost is not None]
        is_reported = all(each.cost_usd is not None for each in usages)
        origin = "as reported by the provider" if is_reported else f"calculated from {source}"
        found = Finding.of("cost_unknown") if len(known) < len(usages) else None
        total = f"{sum(known, Decimal(0)):.6f}".rstrip("0").rstrip(".")
        return f"${total} for this trial, {origin}", found


def _about_call(reply: Reply) -> _Outcome:
    if not reply.tool_calls:
        return "", Finding.of("call_missing")
    call = reply.tool_calls[0]
    if (problem := _problem_of(call)) is not None:
        return "", Finding.of("call_unusable", problem=problem)
    return f"called {call.arguments['action']}, with valid arguments", None


def _opening(provider: Provider, model_id: str) -> list[Message]:
    ledger = prompts.render(
        "ledger",
        entries=[as_entry(entry) for entry in _ENTRIES],
        shown_memories=len(_ENTRIES),
        all_memories=len(_ENTRIES),
    )
    question = prompts.render(
        "consent",
        today=f"{clock.now():%Y-%m-%d}",
        max_mutations=MAX_MUTATIONS,
        removable_tokens=_REMOVABLE_TOKENS,
        keeps_details=True,
        has_second_reading=True,
        memories=len(_ENTRIES),
        mass_tokens=sum(entry["tokens"] for entry in _ENTRIES),
        budget_tokens=DEFAULT_CORE_TOKEN_BUDGET,
        over_budget_tokens=0,
        last_session="none yet",
        trigger="cli",
        is_swept_by_admin=False,
        duplicates_removed=0,
        journal=[],
    )
    is_marked = provider.dialect.needs_ledger_mark(model_id)
    return first_messages(_SYSTEM_PROMPT, ledger, question, is_marked=is_marked)


def _problem_of(call: ToolCall) -> str | None:
    """Return why a session would refuse the call; None if it would accept it."""
    if (problem := problem_with(call, DEFINITION)) is not None:
        return problem
    params = {name: value for name, value in call.arguments.items() if name != "action"}
    try:
        checked(call.arguments.get("action"), params)
    except InvalidValue as fault:
        return str(fault)
    return None


def _result_of(call: ToolCall) -> Message:
    if (problem := _problem_of(call)) is not None:
        outcome = error(problem)
    elif call.arguments["action"] != "search":
        outcome = error("this trial only takes search and complete; nothing was done")
    else:
        found = [entry for entry in _ENTRIES if _SEARCHED_WORD in entry["content"]]
        query = call.arguments.get("query")
        outcome = {"type": "search_results", "query": query, "count": len(found), "results": found}
    outcome |= {"operations_left": MAX_MUTATIONS, "tokens_left": _REMOVABLE_TOKENS}
    return tool_message(call, as_line(without_echo(outcome, call.arguments)))
