"""What a trial of a model showed, in plain words, and what to set."""

from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from typing import Final, Literal, NamedTuple
from urllib.parse import urlsplit

from refine import prompts
from refine.cli.trial import (
    Step,
    Trial,
    accepted_dialect,
    dialect_of_host,
    may_be_a_dialect,
    problem_of,
    refuses_tools,
)
from refine.errors import ProviderError
from refine.health import is_this_machine
from refine.llm.catalogue import ListedModel
from refine.llm.dialects import OPENROUTER
from refine.llm.messages import Reply, ToolCall
from refine.llm.provider import Provider
from refine.prompts import as_line
from refine.refinement.prompting import texts_of_every_session
from refine.rules.consent import Answer
from refine.rules.model_names import in_words, is_rehearsal_model
from refine.rules.prices import Usage
from refine.rules.tokens import MIN_CONTENT_TOKENS, Room
from refine.running.consent_question import answer_of
from refine.settings import Settings

# Below, a session shows few memories, and finds few that repeat.
_FEW_TOKENS: Final = 2_000
# The statuses with which servers refuse tools.
_MAY_REFUSE_TOOLS: Final = (400, 404, 422, 501)

_TOOLS_OF_SERVERS = (
    "choose a model that calls tools, or start the server with them (vLLM: "
    "--enable-auto-tool-choice --tool-call-parser NAME; llama.cpp: --jinja)"
)
_CHECK_MODEL_AND_URL = (
    "check the model id, and that OPENROUTER_BASE_URL is the address to which a client adds "
    "/chat/completions (it often ends in /v1)"
)
_SMALL_CONTEXT = "the server's context is too small for a session; give it a larger one"
# What to do about a fault, by a word among the codes of a refusal, or by its kind.
_ADVICE: Final = {
    "context_length": _SMALL_CONTEXT,
    "context_size": _SMALL_CONTEXT,
    "model_not_found": "choose an id of the provider's list",
    "rate_limited": "wait, then ask again; if that does not help, the key's limits are too low",
    "provider_error": "the provider or server has a fault; ask again later, or look at its log",
    "timeout": "ask again; a local server may be too slow, or still be loading the model",
    "deadline": "choose a faster model, or raise REFINE_MAX_SECONDS",
    "connection": "check OPENROUTER_BASE_URL, and that the server runs",
}
# In US dollars per token, as in the documentation.
_EXAMPLE_PRICE = {"prompt": "0.000003", "completion": "0.000015"}


class Finding(NamedTuple):
    """What was found, whether something must be done, and what."""

    name: str
    mark: Literal["ok", "warn", "fix"]
    text: str


# -- without asking the model ---------------------------------------------------------------------


def about_provider(provider: Provider, model_id: str, settings: Settings) -> Iterator[Finding]:
    """Say what can be told without asking the model: its entry in the list, room, privacy."""
    listed = provider.catalogue.find(model_id)
    yield _about_entry(provider, model_id, listed)
    yield _about_context(listed, provider.catalogue.room(model_id, settings.context_tokens))
    yield _about_privacy(provider)


def _about_entry(provider: Provider, model_id: str, listed: ListedModel | None) -> Finding:
    if not provider.catalogue:
        text = "the provider has no list of models: context, price and other names are not known"
        return Finding("list", "ok", text)
    if listed is None:
        said = f"the provider lists no model {model_id[:100]!r}"
        return Finding("list", "warn", f"{said}; if it is refused, choose one from the list")
    name = in_words(listed.id)
    if not listed.takes_tools:
        text = f"listed as {name}, but without tools, which sessions need; choose another model"
        return Finding("list", "warn", text)
    return Finding("list", "ok", f"listed as {name}{', with tools' if listed.parameters else ''}")


def _about_context(listed: ListedModel | None, room: Room) -> Finding:
    own = [prompts.default_prompt(f"{name}_prompt") for name in ("system", "refinement")]
    left = room.for_content([*own, *texts_of_every_session()])
    is_listed = listed is not None and listed.context_tokens is not None
    if not is_listed and room.context_tokens == Settings.context_tokens:
        text = (
            f"{room.context_tokens:,} tokens are assumed, because the provider lists no context; "
            "set REFINE_CONTEXT_TOKENS if the model, or its server, has less"
        )
        return Finding("context", "warn", text)
    source = "as listed" if is_listed else "as REFINE_CONTEXT_TOKENS says"
    said = (
        f"{room.context_tokens:,} tokens, {source}: {room.output_tokens:,} for an answer, about "
        f"{left // 100 * 100:,} for the memories that a session shows"
    )
    if left < MIN_CONTENT_TOKENS:
        advice = "too few; start the server with a larger context, or choose another model"
        return Finding("context", "fix", f"{said}: {advice}")
    if left < _FEW_TOKENS:
        advice = "a longer ledger is shown in batches, one each session"
        return Finding("context", "warn", f"{said}; {advice}")
    return Finding("context", "ok", said)


def _about_privacy(provider: Provider) -> Finding:
    if dialect_of_host(provider) is OPENROUTER:
        if provider.dialect is OPENROUTER:
            text = "requests demand zero data retention, as accounts do by default"
            return Finding("privacy", "ok", text)
        text = (
            f"requests in the dialect {provider.dialect.name} do not demand zero data retention; "
            "remove REFINE_DIALECT and REFINE_PLAIN_OPENAI"
        )
        return Finding("privacy", "warn", text)
    if is_this_machine(urlsplit(provider.base_url).hostname or ""):
        return Finding("privacy", "ok", "the server is on this machine")
    text = (
        "zero data retention, which accounts demand by default, can be demanded in requests to "
        "OpenRouter only; agree on it with this provider"
    )
    return Finding("privacy", "warn", text)


# -- the answers ----------------------------------------------------------------------------------


def about_answers(trial: Trial, settings: Settings) -> Iterator[Finding]:
    """Say what came at each step, and what the answers told besides.

    Asks again in other dialects where one could help.
    """
    for step, say in _STEPS.items():
        if trial.fault is not None and trial.step == step:
            advice = _advice(trial, trial.fault, settings)
            said = f"{trial.fault}; {advice}" if advice else str(trial.fault)
            yield Finding(step, "fix", said)
        elif replies := trial.replies.get(step):
            yield say(trial, replies[-1])
    if trial.all_replies:
        yield _about_name(trial)
        yield _about_cost(trial, settings)


def _about_consent(trial: Trial, reply: Reply) -> Finding:
    earlier = trial.replies["consent"][:-1]
    word = "YES" if answer_of(reply) is Answer.YES else "NO (which is an answer too)"
    said = f"answered {word} as the first word, with {_output(reply.usage)}"
    if not earlier:
        return Finding("consent", "ok", said)
    unclear = f"{answer_of(earlier[0]).value}, with {_output(earlier[0].usage)}"
    text = f"{unclear}; asked again, it {said}: each session takes one more call"
    return Finding("consent", "warn", text)


def _about_tool_call(_trial: Trial, reply: Reply) -> Finding:
    if not reply.tool_calls:
        text = f"it was asked to call the tool, and answered in words; {_TOOLS_OF_SERVERS}"
        return Finding("tool call", "fix", text)
    return _about_call("tool call", reply.tool_calls[0])


def _about_result(trial: Trial, reply: Reply) -> Finding:
    called = trial.replies["tool call"][-1].tool_calls[0]
    if not reply.tool_calls:
        was_complete = called.arguments.get("action") == "complete"
        text = "the tool's result was accepted; it answered in words"
        needed = "" if was_complete else ", where sessions need another call"
        return Finding("result", "ok" if was_complete else "warn", f"{text}{needed}")
    if problem_of(called) and (problem := problem_of(reply.tool_calls[0])):
        advice = "choose another model, or another tool parser of the server"
        return Finding("result", "fix", f"no call can be used ({problem}); {advice}")
    return _about_call("result", reply.tool_calls[0])


def _about_call(step: Step, call: ToolCall) -> Finding:
    if (problem := problem_of(call)) is not None:
        text = f"its call cannot be used ({problem}); sessions tell the model, which may try again"
        return Finding(step, "warn", text)
    said = f"called {call.arguments['action']}, with valid arguments"
    if call.arguments["action"] in ("search", "complete"):
        return Finding(step, "ok", said)
    return Finding(step, "warn", f"{said}, when it was asked to search")


_STEPS: Final[dict[Step, Callable[[Trial, Reply], Finding]]] = {
    "consent": _about_consent,
    "tool call": _about_tool_call,
    "result": _about_result,
}


def _advice(trial: Trial, fault: ProviderError, settings: Settings) -> str | None:
    if fault.kind == "no_answer":
        return _about_no_answer(trial)
    if fault.kind == "unauthorized":
        return None  # the fault itself says what to check
    for word, advice in _ADVICE.items():
        if word == fault.kind or word in str(fault):
            return advice
    if may_be_a_dialect(trial) and (dialect := accepted_dialect(trial)) is not None:
        removing = "remove REFINE_PLAIN_OPENAI and " if settings.plain_openai else ""
        return f"{removing}set REFINE_DIALECT={dialect.name}, in which every request was accepted"
    if fault.http_status in _MAY_REFUSE_TOOLS and trial.step == "consent" and refuses_tools(trial):
        return f"the same request without a tool was accepted; {_TOOLS_OF_SERVERS}"
    if fault.http_status == 404:
        return _CHECK_MODEL_AND_URL
    if may_be_a_dialect(trial):
        return "other dialects were refused too; check the model id, and the server's log"
    return None


def _about_no_answer(trial: Trial) -> str:
    last = trial.replies["consent"][-1]
    if last.tool_calls or not last.is_cut:
        return "choose another model"
    return (
        f"the last one was cut after {_output(last.usage)}, of {trial.room.output(2):,} allowed; "
        "choose a model that reasons less, or give the server a larger limit or context"
    )


def _about_name(trial: Trial) -> Finding:
    """Say which model answered, as sessions check it."""
    names = sorted({reply.model for reply in trial.all_replies if reply.model is not None})
    if not names:
        return Finding("name", "warn", "answers name no model, so sessions cannot check it")
    for name in names:
        if not trial.provider.catalogue.has_as_one(trial.model_id, name):
            text = f"{in_words(name)} answered, not {trial.model_id}, and sessions end where "
            return Finding("name", "fix", f"{text}another model answers; give agents its own id")
    shown = " and ".join(map(in_words, names))
    same = "" if names == [trial.model_id] else ": the same model"
    return Finding("name", "ok", f"answers as {shown}{same}")


def _about_cost(trial: Trial, settings: Settings) -> Finding:
    """Say whether the cost of calls is known, as runs calculate it."""
    usages = [reply.usage for reply in trial.all_replies]
    prices = trial.provider.catalogue.prices(trial.model_id, settings.prices)
    if all(usage.cost_usd is not None for usage in usages):
        total = _total_usd(usages)
        told = f"{_usd(total)} for this trial, as reported by the provider"
        is_free = any(price.is_zero for price in prices.values())
        if total or is_free or is_rehearsal_model(trial.model_id):
            return Finding("cost", "ok", told)
        advice = "if it is free, set its price to 0 in REFINE_PRICES; else no cost cap can act"
        return Finding("cost", "warn", f"{told}, but no list names a price of 0: {advice}")
    if prices:
        source, price = next(iter(prices.items()))
        if not all(usage.is_counted for usage in usages):
            text = "the answers contain no token counts, so each is counted as the longest possible"
            return Finding("cost", "warn", f"{text}, calculated from {source}")
        total = _total_usd(usage.priced(price) for usage in usages)
        return Finding("cost", "ok", f"{_usd(total)} for this trial, calculated from {source}")
    example = as_line({trial.model_id: _EXAMPLE_PRICE})
    advice = f"set REFINE_PRICES to a file such as {example} (US dollars per token)"
    unknown = "costs stay unknown, and a monthly cost cap stops automatic sessions"
    text = f"neither the answers nor the list name a price: {unknown}; {advice}"
    return Finding("cost", "warn", text)


def _total_usd(usages: Iterable[Usage]) -> Decimal:
    return sum((usage.cost_usd or Decimal(0) for usage in usages), Decimal(0))


def _output(usage: Usage) -> str:
    reasoning = f", {usage.reasoning_tokens:,} for reasoning" if usage.reasoning_tokens else ""
    return f"{usage.completion_tokens:,} tokens of output{reasoning}"


def _usd(amount: Decimal) -> str:
    return f"${amount:.6f}".rstrip("0").rstrip(".")
