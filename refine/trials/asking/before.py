"""What can be told of a model without asking it: its entry in the list, its room, privacy."""

import difflib
from collections.abc import Iterator
from typing import Final
from urllib.parse import urlsplit

from refine import prompts
from refine.llm.catalogue import ListedModel
from refine.llm.dialects import OPENROUTER
from refine.llm.provider import Provider
from refine.refinement.prompting import texts_of_every_session
from refine.rules.context import Room
from refine.rules.hosts import is_this_machine
from refine.rules.model_names import in_words
from refine.settings import Settings
from refine.trials.asking.finding import Finding
from refine.trials.asking.other_dialects import dialect_of_host

# With less room for memories, a session sees too little of them to find what repeats.
_FEW_LEDGER_TOKENS: Final = 1_000


def room_of(provider: Provider, model_id: str, settings: Settings) -> Room:
    """Return the division of the model's context, as sessions divide it."""
    listed = provider.catalogue.find(model_id)
    return Room.of(
        (listed.context_tokens if listed is not None else None) or settings.context_tokens,
        listed.max_output_tokens if listed is not None else None,
    )


def about_provider(provider: Provider, model_id: str, settings: Settings) -> Iterator[Finding]:
    """Say what can be told without asking the model: its entry in the list, room, privacy."""
    listed = provider.catalogue.find(model_id)
    yield _about_entry(provider, model_id, listed)
    yield _about_context(listed, room_of(provider, model_id, settings), settings)
    yield _about_privacy(provider)


def _about_entry(provider: Provider, model_id: str, listed: ListedModel | None) -> Finding:
    if not provider.catalogue:
        text = "the provider has no list of models: context, price and other names are not known"
        return Finding("list", "ok", text)
    if listed is None:
        said = f"the provider lists no model {model_id[:100]!r}{_similar(provider, model_id)}"
        return Finding("list", "warn", f"{said}; if it is refused below, use an id of the list")
    name = in_words(listed.id)
    if not listed.takes_tools:
        text = f"listed as {name}, but without tools, which sessions need; choose another model"
        return Finding("list", "warn", text)
    return Finding("list", "ok", f"listed as {name}{', with tools' if listed.parameters else ''}")


def _similar(provider: Provider, model_id: str) -> str:
    ids = [model.id for model in provider.catalogue.models]
    close = [in_words(each) for each in difflib.get_close_matches(model_id, ids)]
    return f", but {', '.join(close)}" if close else ""


def _about_context(listed: ListedModel | None, room: Room, settings: Settings) -> Finding:
    is_listed = listed is not None and listed.context_tokens is not None
    source = "as listed" if is_listed else "as REFINE_CONTEXT_TOKENS says"
    own = [prompts.default_prompt(f"{name}_prompt") for name in ("system", "refinement")]
    left = room.for_content([*own, *texts_of_every_session()])
    said = (
        f"{room.context_tokens:,} tokens, {source}: at most {room.output_tokens:,} for an answer, "
        f"some {left:,} for the memories that a session shows"
    )
    if not left:
        advice = "too few for a session; choose a model with a larger context"
        if not is_listed:
            advice += ", or set REFINE_CONTEXT_TOKENS if it has more"
        return Finding("context", "fix", f"{said}; {advice}")
    if left < _FEW_LEDGER_TOKENS:
        return Finding("context", "warn", f"{said}; long ledgers will take many sessions")
    if not is_listed and room.context_tokens == Settings.context_tokens:
        advice = (
            "this is assumed, because the provider lists no context: if the model (or its server) "
            "has less, set REFINE_CONTEXT_TOKENS"
        )
        return Finding("context", "warn", f"{said}; {advice}")
    return Finding("context", "ok", said)


def _about_privacy(provider: Provider) -> Finding:
    known = dialect_of_host(provider)
    if provider.dialect is OPENROUTER and known is OPENROUTER:
        text = "requests demand zero data retention, as accounts do by default"
        return Finding("privacy", "ok", text)
    if known is OPENROUTER:
        text = (
            "this dialect leaves out zero data retention, which OpenRouter takes; remove "
            "REFINE_DIALECT and REFINE_PLAIN_OPENAI"
        )
        return Finding("privacy", "fix", text)
    if is_this_machine(urlsplit(provider.base_url).hostname or ""):
        return Finding("privacy", "ok", "the server is on this machine")
    text = (
        "accounts ask for zero data retention, but only OpenRouter takes that in a request; see "
        "to it in your contract with this provider"
    )
    return Finding("privacy", "warn", text)
