"""What can be told of a model without asking it: its entry in the list, its room, privacy."""

import difflib
from collections.abc import Iterator
from typing import Final
from urllib.parse import urlsplit

from refine import prompts
from refine.cli.asking.finding import Finding
from refine.cli.asking.other_dialects import dialect_of_host
from refine.llm.catalogue import ListedModel
from refine.llm.dialects import OPENROUTER
from refine.llm.provider import Provider
from refine.refinement.prompting import texts_of_every_session
from refine.rules.context import MIN_CONTENT_TOKENS, Room
from refine.rules.hosts import is_this_machine
from refine.rules.model_names import in_words
from refine.settings import Settings

# Below, a session shows few memories, and finds few that repeat.
_FEW_TOKENS: Final = 2_000


def about_provider(provider: Provider, model_id: str, settings: Settings) -> Iterator[Finding]:
    """Say what can be told without asking the model: its entry in the list, room, privacy."""
    listed = provider.catalogue.find(model_id)
    yield _about_entry(provider, model_id, listed)
    room = provider.catalogue.room(model_id, settings.context_tokens)
    yield _about_context(listed, room)
    yield _about_privacy(provider)


def _about_entry(provider: Provider, model_id: str, listed: ListedModel | None) -> Finding:
    if not provider.catalogue:
        text = "the provider has no list of models: context, price and other names are not known"
        return Finding("list", "ok", text)
    if listed is None:
        said = f"the provider lists no model {model_id[:100]!r}{_similar(provider, model_id)}"
        return Finding("list", "warn", f"{said}; if it is refused, choose one from the list")
    name = in_words(listed.id)
    if not listed.takes_tools:
        text = f"listed as {name}, but without tools, which sessions need; choose another model"
        return Finding("list", "warn", text)
    return Finding("list", "ok", f"listed as {name}{', with tools' if listed.parameters else ''}")


def _similar(provider: Provider, model_id: str) -> str:
    ids = [model.id for model in provider.catalogue.models]
    close = [in_words(each) for each in difflib.get_close_matches(model_id, ids)]
    return f"; it lists {', '.join(close)}" if close else ""


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
    known = dialect_of_host(provider)
    if known is OPENROUTER:
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
