"""Which server answers for an agent's model."""

from collections.abc import Iterator
from contextlib import contextmanager

from refine.errors import ProviderError
from refine.llm import rehearsal
from refine.llm.openrouter import OpenRouter
from refine.settings import Settings


def known_models(model_id: str, settings: Settings) -> frozenset[str] | None:
    """Return the models of the server that answers for this one; None if it lists none."""
    if model_id.startswith(rehearsal.MODEL_PREFIX):
        return frozenset({model_id})
    if settings.openrouter_api_key is None:
        return None
    client = OpenRouter(settings.openrouter_base_url, settings.openrouter_api_key)
    return client.models()


@contextmanager
def client_for(model_id: str, settings: Settings) -> Iterator[OpenRouter]:
    """Yield a client for the model; ProviderError if it needs a key and none is set."""
    if model_id.startswith(rehearsal.MODEL_PREFIX):
        with rehearsal.serving() as base_url:
            yield OpenRouter(base_url, api_key="rehearsal")
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
