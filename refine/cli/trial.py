"""A trial of a model: it is asked as sessions ask, about made-up memories; nothing is stored."""

import time
import uuid
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any, Final

from refine import clock, prompts
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
from refine.running.model_calls import answer_to_question, not_open, problem_with
from refine.settings import Settings
from refine.tools.calls import error, without_echo
from refine.tools.refinement import DEFINITION, checked

SEARCHED_WORD: Final = "harbour"

_SYSTEM_PROMPT = (
    "You are taking part in a trial of the connection to you. The memories that you are shown are "
    "made up, and nothing that you answer changes anything."
)
_REQUEST = (
    "Thank you. Whatever you answered, nothing will be changed in this trial. Call the tool "
    f'`refinement` now, with the action search and the query "{SEARCHED_WORD}". When you have its '
    "result, call it once more, with the action complete and a summary of a few words."
)
_CONTENTS = (
    "The harbour office opens at seven, and its letters go into the blue folder.",
    "Mira prefers short answers in the morning and longer ones after lunch.",
    "The ferry to the island leaves at 8:40 on weekdays.",
    "We agreed to call the second draft of the map the grey one.",
    "Otto asked for the tide tables of the harbour, and printed them twice.",
)
_FIRST_ID = 101
_REMOVABLE_TOKENS = 20

# Below, a session shows few memories, and finds few that repeat.
_FEW_TOKENS: Final = 2_000

_CALLS_TOOLS = (
    "choose a model that calls tools, or start the server with them (vLLM: "
    "--enable-auto-tool-choice --tool-call-parser NAME; llama.cpp: --jinja)"
)
_SMALL_CONTEXT = "start the server with a larger context, or choose another model"
# What to do about a fault, by a word among the codes of a refusal, or by its kind.
_ADVICE: Final = {
    "context_length": _SMALL_CONTEXT,
    "context_size": _SMALL_CONTEXT,
    "model_not_found": "choose an id of the provider's list",
    "HTTP 404": "check the model id, and that OPENROUTER_BASE_URL is the address to which a client "
    "adds /chat/completions (it often ends in /v1)",
    "no_answer": "choose a model that reasons less, or give the server a larger output limit",
    "invalid_request": "set another REFINE_DIALECT (docs/operations.md lists them) and ask again; "
    f"if all are refused, {_CALLS_TOOLS}",
    "rate_limited": "wait, then ask again; if that does not help, the key's limits are too low",
    "deadline": "choose a faster model, or raise REFINE_MAX_SECONDS",
    "connection": "check OPENROUTER_BASE_URL, and that the server runs",
}


def about_provider(provider: Provider, model_id: str, settings: Settings) -> Iterator[Check]:
    """Yield what is known without asking the model: its entry in the list, and room."""
    warning = warning_about(model_id, settings, is_demo=True)
    listed = "lists it" if provider.catalogue else "has no list: context and price are not known"
    yield Check("list", None, f"the provider {listed}", warning)
    room = provider.catalogue.room(model_id, settings.context_tokens)
    own = [prompts.default_prompt(f"{name}_prompt") for name in ("system", "refinement")]
    left = room.for_content([*own, *texts_of_every_session()])
    said = (
        f"{room.context_tokens:,} tokens (REFINE_CONTEXT_TOKENS, if the provider lists none): "
        f"{room.output_tokens:,} for an answer, about {left // 100 * 100:,} for the memories that "
        "a session shows"
    )
    too_few = f"{said}: too few; {_SMALL_CONTEXT}" if left < MIN_CONTENT_TOKENS else None
    few = f"{said}; a longer ledger is shown in batches, one each session"
    yield Check("context", too_few, said, few if left < _FEW_TOKENS else None)


class Trial:
    def __init__(self, provider: Provider, model_id: str, settings: Settings) -> None:
        self._provider, self._model_id, self._settings = provider, model_id, settings
        self._room = provider.catalogue.room(model_id, settings.context_tokens)
        self._deadline = time.monotonic() + settings.max_seconds
        self._privacy = Privacy(session_id=str(uuid.uuid4()), account_ref="trial")
        self._messages = opening(provider, model_id)
        self._replies: list[Reply] = []

    def checks(self) -> Iterator[Check]:
        """Ask until the end, or until sessions could not continue; yield what each step shows."""
        steps = {"consent": self._consent, "tool call": self._call, "result": self._second_call}
        for name, step in steps.items():
            try:
                found = step()
            except ProviderError as fault:
                found = Check(name, _with_advice(fault))
            yield found
            if not found.is_ok:
                break
        if self._replies:
            yield self._about_name()
            yield self._about_cost()

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

    def _consent(self) -> Check:
        reply, agrees = answer_to_question(self._ask, self._messages)
        # sessions end at a NO; here the conversation continues, and calls want results
        self._messages += not_open(reply)
        said = f"answered {'YES' if agrees else 'NO (which is an answer too)'} as the first word"
        if len(self._replies) == 1:
            tokens = reply.usage.completion_tokens
            return Check("consent", None, f"{said}, with {tokens:,} tokens of output")
        text = f"{said}, but only when asked again: each session takes one more call"
        return Check("consent", None, warning=text)

    def _call(self) -> Check:
        self._messages.append(user_message(_REQUEST))
        reply = self._ask()
        self._messages += [reply.message, *map(_result_of, reply.tool_calls)]
        return _about_call("tool call", reply)

    def _second_call(self) -> Check:
        reply = self._ask()
        before = self._replies[-2].tool_calls[0]
        if not reply.tool_calls and before.arguments.get("action") == "complete":
            return Check("result", None, "it took the result of complete, which ends a session")
        return _about_call("result", reply)

    def _about_name(self) -> Check:
        names = sorted({reply.model for reply in self._replies if reply.model is not None})
        if not names:
            return Check("name", None, warning="answers name no model: sessions cannot check it")
        for name in names:
            if not self._provider.catalogue.is_same_model(self._model_id, name):
                text = f"{in_words(name)} answered, not {self._model_id}, and sessions end where "
                return Check("name", f"{text}another model answers; give agents its own id")
        return Check("name", None, f"answers as {' and '.join(map(in_words, names))}")

    def _about_cost(self) -> Check:
        usages = [reply.usage for reply in self._replies]
        if all(usage.cost_usd is not None for usage in usages):
            told = f"{_usd([each.cost_usd for each in usages])} for this trial"
            return Check("cost", None, f"{told}, as reported by the provider")
        prices = self._provider.catalogue.prices(self._model_id, self._settings.prices)
        for source, price in prices.items():
            told = f"{_usd([each.priced(price).cost_usd for each in usages])} for this trial"
            return Check("cost", None, f"{told}, calculated from {source}")
        text = (
            "neither the answers nor the list name a price: costs stay unknown, and a monthly cost "
            "cap stops automatic sessions; set REFINE_PRICES (see docs/operations.md)"
        )
        return Check("cost", None, warning=text)


def _about_call(step: str, reply: Reply) -> Check:
    if not reply.tool_calls:
        return Check(step, f"it answered in words, where a call was needed; {_CALLS_TOOLS}")
    call = reply.tool_calls[0]
    if (problem := problem_of(call)) is None:
        return Check(step, None, f"called {call.arguments['action']}, with valid arguments")
    advice = "choose another model, or another tool parser of the server"
    text = f"its call cannot be used ({problem}); {advice}"
    # after the first, sessions tell the model, which may do better
    return Check(step, text) if step == "result" else Check(step, None, warning=text)


def made_up_entries() -> list[dict[str, Any]]:
    return [
        {
            "id": _FIRST_ID + position,
            "date": f"2026-01-{12 + position}",
            "tokens": token_estimate(content),
            "constitutional": False,
            "tags": [],
            "content": content,
        }
        for position, content in enumerate(_CONTENTS)
    ]


def opening(provider: Provider, model_id: str) -> list[Message]:
    entries = made_up_entries()
    ledger = prompts.render(
        "ledger",
        entries=[as_entry(entry) for entry in entries],
        shown_memories=len(entries),
        all_memories=len(entries),
    )
    question = prompts.render(
        "consent",
        today=f"{clock.now():%Y-%m-%d}",
        max_mutations=MAX_MUTATIONS,
        removable_tokens=_REMOVABLE_TOKENS,
        keeps_details=True,
        has_second_reading=True,
        memories=len(entries),
        mass_tokens=sum(entry["tokens"] for entry in entries),
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


def problem_of(call: ToolCall) -> str | None:
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
    if (problem := problem_of(call)) is not None:
        outcome = error(problem)
    elif call.arguments["action"] != "search":
        outcome = error("this trial only takes search and complete; nothing was done")
    else:
        found = [entry for entry in made_up_entries() if SEARCHED_WORD in entry["content"]]
        query = call.arguments.get("query")
        outcome = {"type": "search_results", "query": query, "count": len(found), "results": found}
    outcome |= {"operations_left": MAX_MUTATIONS, "tokens_left": _REMOVABLE_TOKENS}
    return tool_message(call, as_line(without_echo(outcome, call.arguments)))


def _with_advice(fault: ProviderError) -> str:
    fitting = (
        advice for word, advice in _ADVICE.items() if word == fault.kind or word in str(fault)
    )
    return "; ".join([str(fault), *list(fitting)[:1]])


def _usd(amounts: Sequence[Decimal | None]) -> str:
    total = sum((amount or Decimal(0) for amount in amounts), Decimal(0))
    return f"${total:.6f}".rstrip("0").rstrip(".")
