"""Which server answers for an agent's model."""

import time

import pytest
import requests
from cryptography.fernet import Fernet

from refine.errors import ProviderError
from refine.llm.clients import client_for
from refine.llm.messages import user_message
from refine.llm.openrouter import OpenRouter, Privacy
from refine.settings import Settings


def settings(**variables: str) -> Settings:
    return Settings.from_environ(
        {
            "DATABASE_URL": "postgresql://db.example.org/refine",
            "SECRET_KEY": "a secret of the tests",
            "REFINE_ENCRYPTION_KEYS": Fernet.generate_key().decode(),
            **variables,
        }
    )


def test_the_configured_provider_is_the_default() -> None:
    configured = settings(OPENROUTER_API_KEY="sk-1", OPENROUTER_BASE_URL="https://llm.example/v1")

    with client_for("test/model", configured) as client:
        assert client == OpenRouter("https://llm.example/v1", "sk-1", plain=False)


def test_a_plain_server_gets_a_plain_client() -> None:
    configured = settings(OPENROUTER_API_KEY="sk-1", REFINE_PLAIN_OPENAI="1")

    with client_for("test/model", configured) as client:
        assert client.plain


@pytest.mark.parametrize("model_id", ["test/model", "rehearsal", "my/rehearsal/model"])
def test_a_provider_needs_a_key(model_id: str) -> None:
    with (
        pytest.raises(ProviderError, match="OPENROUTER_API_KEY is missing") as fault,
        client_for(model_id, settings()),
    ):
        pass

    assert fault.value.kind == "no_key"


@pytest.mark.parametrize("key", ["", "sk-1"])
def test_rehearsal_models_need_no_key(key: str) -> None:
    privacy = Privacy(session_id="session", account_ref="account")

    with client_for("rehearsal/wren", settings(OPENROUTER_API_KEY=key)) as client:
        reply = client.generate(
            "rehearsal/wren",
            [user_message("Do you consent? YES or NO.")],
            [],
            privacy,
            deadline=time.monotonic() + 20,
        )

    assert reply.text is not None
    assert client.api_key == "rehearsal"


def test_the_rehearsal_server_stops_afterwards() -> None:
    with client_for("rehearsal/wren", settings()) as client:
        base_url = client.base_url

    with pytest.raises(requests.ConnectionError):
        requests.post(f"{base_url}/chat/completions", json={}, timeout=5)
