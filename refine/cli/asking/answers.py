"""What a model's answers showed, in plain words, and what to set."""

from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from typing import Final

from refine.cli.asking.finding import Finding
from refine.cli.asking.other_dialects import accepted_dialect, may_help, refuses_tools
from refine.cli.asking.trial import Step, Trial, problem_of
from refine.errors import ProviderError
from refine.llm.catalogue import Catalogue
from refine.llm.dialects import Dialect
from refine.llm.messages import Reply, Usage
from refine.prompts import as_line
from refine.rules.consent import Answer
from refine.rules.context import MAX_OUTPUT_TOKENS
from refine.rules.model_names import in_words, is_rehearsal_model, is_same_model
from refine.running.consent_question import answer_of
from refine.settings import Settings

# An answer that ends well below the limit that was asked for was cut by a limit of the server.
_NEARLY: Final = 0.9

_TOOLS_OF_SERVERS = (
    "choose a model that calls tools, or start the server with them (vLLM: "
    "--enable-auto-tool-choice --tool-call-parser NAME; llama.cpp: --jinja)"
)
_MAY_TRY_AGAIN = "sessions report this to the model, which may try again"
# The statuses with which servers refuse tools.
_MAY_REFUSE_TOOLS: Final = (400, 404, 422, 501)

_CHECK_MODEL_AND_URL = (
    "check the model id, and that OPENROUTER_BASE_URL is the address to which a client adds "
    "/chat/completions (it often ends in /v1)"
)
# In US dollars per token, as in the documentation.
_EXAMPLE_PRICE = {"prompt": "0.000003", "completion": "0.000015"}
# What a provider means by a cost of 0 for a model that is not free.
_UNBILLED: Final = (
    "if somebody else bills you for it, no monthly cost cap can act; if it is free, set its "
    "price to 0 in REFINE_PRICES"
)

# What to do about a fault, by its kind.
_BY_KIND: Final = {
    "rate_limited": "wait, then ask again; if that does not help, the key's limits are too low",
    "provider_error": "the provider or server has a fault; ask again later, or look at its log",
    "timeout": "ask again; a local server may be too slow, or still be loading the model",
    "deadline": "choose a faster model, or raise REFINE_MAX_SECONDS",
    "connection": "check OPENROUTER_BASE_URL, and that the server runs",
}
# By words among the codes of a refusal, such as exceed_context_size_error (llama.cpp).
_BY_CODE: Final = {
    "context_length": "the server's context is too small for a session; give it a larger one",
    "context_size": "the server's context is too small for a session; give it a larger one",
    "model_not_found": "choose an id of the provider's list",
}


def about_answers(trial: Trial, settings: Settings) -> Iterator[Finding]:
    """Say what came at each step, and what the answers told besides.

    Asks again in other dialects where one could help.
    """
    for step, say in _STEPS.items():
        if trial.fault is not None and trial.step == step:
            yield Finding(step, "fix", _explained(trial, trial.fault, settings))
        elif (reply := trial.last(step)) is not None:
            yield say(trial, reply)
    if trial.all_replies:
        yield _about_name(trial)
        yield _about_cost(trial, settings)
    if (reply := trial.last("result")) is not None:
        yield _about_cache(reply.usage)


# -- the steps ------------------------------------------------------------------------------------


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
    call = reply.tool_calls[0]
    if (problem := problem_of(call)) is not None:
        text = f"its call cannot be used ({problem}); {_MAY_TRY_AGAIN}"
        return Finding("tool call", "warn", text)
    action = call.arguments["action"]
    if action in ("search", "complete"):
        return Finding("tool call", "ok", f"called {action}, with valid arguments")
    text = f"called {action}, with valid arguments, when it was asked to search"
    return Finding("tool call", "warn", text)


def _about_result(trial: Trial, reply: Reply) -> Finding:
    taken = "the next request was accepted, with its own message and the tool's result"
    called = trial.replies["tool call"][-1].tool_calls[0]
    if not reply.tool_calls:
        is_over = called.arguments.get("action") == "complete"
        said = f"{taken}; it answered in words"
        if is_over:
            return Finding("result", "ok", said)
        return Finding("result", "warn", f"{said}, where sessions need another call")
    problem = problem_of(reply.tool_calls[0])
    if problem is None:
        action = reply.tool_calls[0].arguments["action"]
        return Finding("result", "ok", f"{taken}; it called {action}, with valid arguments")
    text = f"{taken}; but this call cannot be used ({problem})"
    if problem_of(called) is None:
        return Finding("result", "warn", f"{text}; {_MAY_TRY_AGAIN}")
    advice = "choose another model, or another tool parser of the server"
    return Finding("result", "fix", f"{text}, like the first one; {advice}")


_STEPS: Final[dict[Step, Callable[[Trial, Reply], Finding]]] = {
    "consent": _about_consent,
    "tool call": _about_tool_call,
    "result": _about_result,
}


# -- a step that failed ---------------------------------------------------------------------------


def _explained(trial: Trial, fault: ProviderError, settings: Settings) -> str:
    """Return the fault, and what to set or do."""
    advice = _advice(trial, fault, settings)
    return f"{fault}; {advice}" if advice else str(fault)


def _advice(trial: Trial, fault: ProviderError, settings: Settings) -> str | None:
    if fault.kind == "no_answer":
        return _about_no_answer(trial)
    if fault.kind == "unauthorized":
        return None  # the fault itself says what to check
    by_code = (advice for code, advice in _BY_CODE.items() if code in str(fault))
    if known := next(by_code, None) or _BY_KIND.get(fault.kind):
        return known
    if may_help(trial) and (dialect := accepted_dialect(trial)) is not None:
        return _setting(dialect, settings)
    if fault.http_status in _MAY_REFUSE_TOOLS and trial.step == "consent" and refuses_tools(trial):
        return f"the same request without a tool was accepted; {_TOOLS_OF_SERVERS}"
    if fault.http_status == 404:
        return _CHECK_MODEL_AND_URL
    if may_help(trial):
        return "other dialects were refused too; check the model id, and the server's log"
    return None


def _setting(dialect: Dialect, settings: Settings) -> str:
    """Return what to set for a dialect in which the trial went well."""
    removing = "remove REFINE_PLAIN_OPENAI and " if settings.plain_openai else ""
    return f"{removing}set REFINE_DIALECT={dialect.name}, in which every request was accepted"


def _about_no_answer(trial: Trial) -> str:
    last = trial.replies["consent"][-1]
    if last.tool_calls or not last.is_cut:
        return "choose another model"
    said, limit = _output(last.usage), trial.room.output(2)
    if 0 < last.usage.completion_tokens < _NEARLY * limit:
        return (
            f"the last one was cut after {said}, though {limit:,} were allowed; raise the server's "
            "own limit, or its context"
        )
    if trial.room.output_tokens < MAX_OUTPUT_TOKENS:
        return (
            f"the last one took {said}; an answer gets a quarter of the context at most, so give "
            "the model a larger one, or choose one that reasons less"
        )
    return f"the last one took {said}; choose a model that reasons less, or let it reason less"


# -- besides --------------------------------------------------------------------------------------


def _about_name(trial: Trial) -> Finding:
    """Say which model answered, as sessions check it."""
    pinned, catalogue = trial.model_id, trial.provider.catalogue
    names = sorted({reply.model for reply in trial.all_replies if reply.model is not None})
    if not names:
        return Finding("name", "warn", "answers name no model, so sessions cannot check it")
    aliases = [name for name in names if not is_same_model(pinned, name)]
    for name in names:
        if not catalogue.has_as_one(pinned, name):
            text = f"{in_words(name)} answered, not {pinned}, and sessions end where another model"
            return Finding("name", "fix", f"{text} answers; {_id_to_choose(name, catalogue)}")
    shown = " and ".join(map(in_words, names))
    if names == [pinned]:
        return Finding("name", "ok", f"answers as {shown}")
    confirmed = "the same model according to the provider's list" if aliases else "the same model"
    return Finding("name", "ok", f"answers as {shown}: {confirmed}")


def _id_to_choose(answered: str, catalogue: Catalogue) -> str:
    """Return the advice which id agents need, so that this model answers under its own name."""
    listed = (model.id for model in catalogue.models if is_same_model(model.id, answered))
    found = catalogue.find(answered)
    slug = found.id if found is not None else next(listed, answered)
    if in_words(slug) != slug:
        return "choose another model"
    return f"give agents the model id {slug}"


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
        return Finding("cost", "warn", f"{told}, but no list names a price of 0: {_UNBILLED}")
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


def _about_cache(usage: Usage) -> Finding:
    if usage.cached_tokens:
        said = f"{usage.cached_tokens:,} of {usage.prompt_tokens:,} prompt tokens"
        return Finding("cache", "ok", f"{said} of the last request came from the provider's cache")
    text = (
        "no cached tokens were counted: these prompts may be too short for the provider's cache, "
        "or it has none, and each turn of a session costs the whole prompt again"
    )
    return Finding("cache", "ok", text)


def _output(usage: Usage) -> str:
    reasoning = f", {usage.reasoning_tokens:,} for reasoning" if usage.reasoning_tokens else ""
    return f"{usage.completion_tokens:,} tokens of output{reasoning}"


def _usd(amount: Decimal) -> str:
    return f"${amount:.6f}".rstrip("0").rstrip(".")
