"""What a model's answers showed, in plain words, and what to set."""

from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Final

from refine.errors import ProviderError
from refine.llm.dialects import OPENROUTER
from refine.llm.messages import Reply, Usage
from refine.rules.consent import consents, refuses
from refine.rules.context import MAX_OUTPUT_TOKENS
from refine.rules.model_names import in_words, is_same_model
from refine.rules.prices import Price, price_of
from refine.settings import Settings
from refine.trials.asking.finding import Finding
from refine.trials.asking.other_dialects import accepted_dialect, dialect_of_host, may_help
from refine.trials.asking.trial import Step, Trial, problem_of

# An answer that ends well below the limit that was asked for was cut by a limit of the server.
_NEARLY: Final = 0.9

_TOOLS_OF_SERVERS = (
    "choose a model that calls tools, or start the server with them (vLLM: "
    "--enable-auto-tool-choice --tool-call-parser NAME; llama.cpp: --jinja)"
)
_CHECK_MODEL_AND_URL = (
    "check the model id, and that OPENROUTER_BASE_URL is the address to which a client adds "
    "/chat/completions (it often ends in /v1)"
)
_PRICES = (
    'name them in a file, {"MODEL": {"prompt": "0.000003", "completion": "0.000015"}} in US '
    "dollars per token, and set REFINE_PRICES to its path"
)


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
    is_yes = consents(reply.text)
    if not is_yes and not refuses(reply.text):
        text = (
            "answered with neither YES nor NO as the first word, which counts as a no; if it does "
            "so again, choose another model"
        )
        return Finding("consent", "warn", text)
    said = f"answered {'YES' if is_yes else 'NO'} as the first word ({_output(reply.usage)})"
    if any(each.tool_calls for each in earlier):
        text = f"called the tool before it answered; asked back, it {said}: each time one more call"
        return Finding("consent", "warn", text)
    if earlier:
        cut = f"the first answer was cut or empty ({_output(earlier[0].usage)})"
        return Finding("consent", "warn", f"{cut}; asked again with more room, it {said}")
    return Finding("consent", "ok", said)


def _about_tool_call(_trial: Trial, reply: Reply) -> Finding:
    if not reply.tool_calls:
        text = f"called no tool when it was asked to, and answered in words; {_TOOLS_OF_SERVERS}"
        return Finding("tool call", "fix", text)
    call = reply.tool_calls[0]
    if (problem := problem_of(call)) is not None:
        text = f"sent a call that cannot be used ({problem}); sessions say so, and it may try again"
        return Finding("tool call", "warn", text)
    action = call.arguments["action"]
    if action in ("search", "complete"):
        return Finding("tool call", "ok", f"called {action}, with valid arguments")
    text = f"called {action} when it was asked to search; try it with `refine evaluate` before use"
    return Finding("tool call", "warn", text)


def _about_result(trial: Trial, reply: Reply) -> Finding:
    taken = "took its own message and the tool's result back"
    called = trial.replies["tool call"][-1].tool_calls[0]
    if not reply.tool_calls:
        is_over = called.arguments.get("action") == "complete"
        text = "answered in words" if is_over else "then called nothing more; sessions remind once"
        return Finding("result", "ok" if is_over else "warn", f"{taken}, and {text}")
    problem = problem_of(reply.tool_calls[0])
    if problem is None:
        action = reply.tool_calls[0].arguments["action"]
        return Finding("result", "ok", f"{taken}, and called {action}, with valid arguments")
    text = f"{taken}, but its next call cannot be used ({problem})"
    if problem_of(called) is None:
        return Finding("result", "warn", f"{text}; sessions say so, and it may try again")
    return Finding("result", "fix", f"{text}, as the first; choose another model or tool parser")


_STEPS: Final[dict[Step, Callable[[Trial, Reply], Finding]]] = {
    "consent": _about_consent,
    "tool call": _about_tool_call,
    "result": _about_result,
}


# -- a step that failed ---------------------------------------------------------------------------


def _explained(trial: Trial, fault: ProviderError, settings: Settings) -> str:
    """Return the fault, and what to set."""
    advice = ""
    if fault.kind == "no_answer":
        advice = _about_no_answer(trial)
    elif may_help(trial):
        advice = _about_dialect(trial, settings)
    elif fault.http_status == 404 and dialect_of_host(trial.provider) is not OPENROUTER:
        advice = _CHECK_MODEL_AND_URL
    elif fault.kind == "deadline":
        advice = "choose a faster model, or set REFINE_MAX_SECONDS higher"
    return f"{fault}; {advice}" if advice else str(fault)


def _about_no_answer(trial: Trial) -> str:
    last = trial.replies["consent"][-1]
    if last.tool_calls or not last.is_cut:
        return "choose another model"
    said, limit = _output(last.usage), trial.room.output(2)
    if 0 < last.usage.completion_tokens < _NEARLY * limit:
        return f"{said}, of {limit:,} asked for: raise the server's own limit of output or context"
    if trial.room.output_tokens < MAX_OUTPUT_TOKENS:
        return (
            f"{said}: let the model reason less, or give it a larger context: an answer gets at "
            "most a quarter of it (REFINE_CONTEXT_TOKENS, if the provider lists none)"
        )
    return f"{said}: let the model reason less, or choose another one"


def _about_dialect(trial: Trial, settings: Settings) -> str:
    dialect = accepted_dialect(trial)
    if dialect is None:
        return (
            f"it was refused in other dialects too, so more than the dialect "
            f"({trial.provider.dialect.name}) is wrong; the server's log may tell what"
        )
    removing = "remove REFINE_PLAIN_OPENAI and " if settings.plain_openai else ""
    return f"{removing}set REFINE_DIALECT={dialect.name}, in which it was accepted"


# -- besides --------------------------------------------------------------------------------------


def _about_name(trial: Trial) -> Finding:
    """Say which model answered, as sessions check it."""
    pinned, catalogue = trial.model_id, trial.provider.catalogue
    answered = {reply.model for reply in trial.all_replies if reply.model is not None}
    if not answered:
        return Finding("name", "warn", "the answers name no model, so it cannot be checked")
    for name in sorted(answered):
        if is_same_model(pinned, name):
            continue
        if not catalogue.confirms(pinned, name):
            listed = catalogue.find(name)
            slug = in_words(listed.id if listed is not None else name)
            text = f"another model answered, which ends every session; give agents {slug} instead"
            return Finding("name", "fix", text)
    names = ", ".join(in_words(name) for name in sorted(answered))
    if answered == {pinned}:
        return Finding("name", "ok", f"answers as {names}")
    is_alias = not all(is_same_model(pinned, name) for name in answered)
    confirmed = "which the list confirms" if is_alias else "the same model"
    return Finding("name", "ok", f"answers as {names}, {confirmed}")


def _about_cost(trial: Trial, settings: Settings) -> Finding:
    """Say whether the cost of calls is known, as runs reckon it."""
    usages = [reply.usage for reply in trial.all_replies]
    listed = trial.provider.catalogue.find(trial.model_id)
    sources = {
        "reckoned from the provider's list": listed.price if listed is not None else None,
        "reckoned from REFINE_PRICES": price_of(trial.model_id, settings.prices),
    }
    if all(usage.cost_usd is not None for usage in usages):
        total = sum((usage.cost_usd or Decimal(0) for usage in usages), Decimal(0))
        return Finding("cost", "ok", f"{_usd(total)} for this trial, as the provider tells")
    unknown = "the cost of calls is not known, so a monthly cost cap would stop automatic sessions"
    if not all(usage.prompt_tokens for usage in usages):
        return Finding("cost", "warn", f"the answers count no tokens; {unknown}")
    for source, price in sources.items():
        if price is not None:
            total = sum((_cost_usd(usage, price) for usage in usages), Decimal(0))
            return Finding("cost", "ok", f"{_usd(total)} for this trial, {source}")
    return Finding("cost", "warn", f"no prices: {unknown}; {_PRICES}")


def _cost_usd(usage: Usage, price: Price) -> Decimal:
    if usage.cost_usd is not None:
        return usage.cost_usd
    return price.cost_usd(
        prompt_tokens=usage.prompt_tokens,
        cached_tokens=usage.cached_tokens,
        completion_tokens=usage.completion_tokens,
    )


def _about_cache(usage: Usage) -> Finding:
    if usage.cached_tokens:
        said = f"{usage.cached_tokens:,} of {usage.prompt_tokens:,} prompt tokens"
        return Finding("cache", "ok", f"{said} of the last request came from the provider's cache")
    text = (
        "no cached tokens were counted; this trial may be too short for the provider's cache, or "
        "it has none: then each turn of a session costs the whole prompt again"
    )
    return Finding("cache", "ok", text)


def _output(usage: Usage) -> str:
    reasoning = f", {usage.reasoning_tokens:,} for reasoning" if usage.reasoning_tokens else ""
    return f"{usage.completion_tokens:,} tokens of output{reasoning}"


def _usd(amount: Decimal) -> str:
    return f"${amount:.6f}".rstrip("0").rstrip(".")
