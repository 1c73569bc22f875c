"""Which server answers for an agent's model."""

from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from refine.errors import InvalidValue, ProviderError
from refine.llm import dialects, rehearsal
from refine.llm.dialects import OPENROUTER, Dialect
from refine.llm.provider import Provider
from refine.rules.model_names import is_rehearsal_model, names_one_model
from refine.settings import Settings

_NOT_REHEARSED = (
    "the rehearsal model answers only agents of the demo account; give this agent a model of your "
    "provider (without a provider, REFINE_REHEARSAL=1 rehearses every account)"
)
_NOT_ONE_MODEL = (
    "model_id must name one model, as author/model, so that nobody else reads what is sent: no "
    "preset, router or alias of OpenRouter, and of its variants only those that search nothing "
    "(for a server of another kind, set REFINE_DIALECT or REFINE_PLAIN_OPENAI=1)"
)
_NO_KEY = (
    "no API key: set OPENROUTER_API_KEY on the server (any value, if your model server needs none)"
)


def is_rehearsed(model_id: str, settings: Settings, *, is_demo: bool) -> bool:
    return is_rehearsal_model(model_id) and settings.rehearses(is_demo=is_demo)


def dialect_of(settings: Settings) -> Dialect:
    """Return the dialect that the settings name, or that of the host; else OpenRouter's."""
    if settings.plain_openai:
        return dialects.PLAIN
    if settings.dialect is not None:
        return dialects.named(settings.dialect)
    return _dialect_of_host(settings) or OPENROUTER


def _dialect_of_host(settings: Settings) -> Dialect | None:
    return dialects.of_host(urlsplit(settings.openrouter_base_url).hostname or "")


def require_one_model(model_id: str, settings: Settings) -> None:
    """Raise InvalidValue for a name of OpenRouter's that is not that of one model."""
    if not _may_be_sent(model_id, settings):
        raise InvalidValue(_NOT_ONE_MODEL)


def _may_be_sent(model_id: str, settings: Settings) -> bool:
    at_openrouter = OPENROUTER.name == settings.dialect or _dialect_of_host(settings) is OPENROUTER
    if is_rehearsal_model(model_id) or not (at_openrouter or dialect_of(settings) is OPENROUTER):
        return True
    return names_one_model(model_id, at_openrouter=at_openrouter)


def configured_provider(settings: Settings) -> Provider | None:
    if (key := settings.openrouter_api_key) is None:
        return None
    return Provider(settings.openrouter_base_url, key, dialect_of(settings))


def warning_about(model_id: str, settings: Settings, *, is_demo: bool) -> str | None:
    """Return why sessions with this model would fail, by the provider's list, or None."""
    if is_rehearsal_model(model_id):
        offered = is_rehearsed(model_id, settings, is_demo=is_demo)
        return None if offered else _NOT_REHEARSED
    provider = configured_provider(settings)
    if provider is None or not provider.catalogue:
        return None
    listed = provider.catalogue.find(model_id)
    if listed is None:
        return f"the provider lists no model {model_id[:100]!r}"
    return None if listed.takes_tools else f"the provider lists {model_id!r} without tools"


@contextmanager
def client_for(model_id: str, settings: Settings, *, is_demo: bool) -> Iterator[Provider]:
    if is_rehearsed(model_id, settings, is_demo=is_demo):
        with rehearsal.serving() as base_url:
            yield Provider(base_url, api_key="rehearsal")
        return
    if is_rehearsal_model(model_id):
        raise ProviderError(_NOT_REHEARSED, kind="no_rehearsal")
    provider = configured_provider(settings)
    if provider is None:
        raise ProviderError(_NO_KEY, kind="no_key")
    if not _may_be_sent(model_id, settings):  # saved before, or under other settings
        raise ProviderError(_NOT_ONE_MODEL, kind="model_name")
    yield provider
