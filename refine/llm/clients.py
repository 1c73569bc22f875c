"""Which server answers for an agent's model."""

from collections.abc import Iterator
from contextlib import contextmanager

from refine.errors import ProviderError
from refine.llm import rehearsal
from refine.llm.openrouter import OpenRouter
from refine.rules.model_names import is_rehearsal_model
from refine.settings import Settings


def is_rehearsed(model_id: str, settings: Settings, *, is_demo: bool) -> bool:
    """Tell whether the rehearsal model answers for this model of an agent.

    For the demo account; for others only with REFINE_REHEARSAL=1, and never where a provider is
    configured, so that it cannot be put in place of an agent's own model.
    """
    may_stand_in = settings.rehearsal and settings.openrouter_api_key is None
    return is_rehearsal_model(model_id) and (is_demo or may_stand_in)


def known_models(model_id: str, settings: Settings, *, is_demo: bool) -> frozenset[str] | None:
    """Return the models of the server that answers for this one; None if it lists none."""
    if is_rehearsal_model(model_id):
        is_offered = is_rehearsed(model_id, settings, is_demo=is_demo)
        return frozenset({model_id} if is_offered else ())
    if settings.openrouter_api_key is None:
        return None
    client = OpenRouter(settings.openrouter_base_url, settings.openrouter_api_key)
    return client.models()


@contextmanager
def client_for(model_id: str, settings: Settings, *, is_demo: bool) -> Iterator[OpenRouter]:
    """Yield a client for the model; ProviderError if no server is configured for it."""
    if is_rehearsed(model_id, settings, is_demo=is_demo):
        with rehearsal.serving() as base_url:
            yield OpenRouter(base_url, api_key="rehearsal")
    elif is_rehearsal_model(model_id):
        raise ProviderError(
            "the rehearsal model answers only agents of the demo account; give this agent a model "
            "of your provider (without a provider, REFINE_REHEARSAL=1 rehearses every account)",
            kind="no_rehearsal",
        )
    elif settings.openrouter_api_key is None:
        raise ProviderError(
            "OPENROUTER_API_KEY is missing: set it to ask this agent's model (to any value, for a "
            "local server without keys)",
            kind="no_key",
        )
    else:
        yield OpenRouter(
            settings.openrouter_base_url, settings.openrouter_api_key, plain=settings.plain_openai
        )
