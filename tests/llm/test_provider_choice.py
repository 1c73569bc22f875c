"""Which server answers for an agent's model."""

import pytest
from cryptography.fernet import Fernet

from refine.errors import InvalidValue, ProviderError, SettingsError
from refine.llm.provider import (
    client_for,
    dialect_of,
    is_rehearsed,
    require_one_model,
    warning_about,
)
from refine.settings import Settings

_OTHER_HOST = {"OPENROUTER_BASE_URL": "https://llm.example/v1"}


def settings(**variables: str) -> Settings:
    return Settings.from_environ(
        {
            "DATABASE_URL": "postgresql://db.example.org/refine",
            "SECRET_KEY": "a secret of the tests",
            "REFINE_ENCRYPTION_KEYS": Fernet.generate_key().decode(),
            **variables,
        }
    )


@pytest.mark.parametrize(
    ("variables", "refused"),
    [
        ({}, ["author/model:online", "gpt-4o"]),
        ({"REFINE_PLAIN_OPENAI": "1"}, ["author/model:online", "gpt-4o"]),
        ({**_OTHER_HOST, "REFINE_DIALECT": "openrouter"}, ["author/model:online", "gpt-4o"]),
        (_OTHER_HOST, ["author/model:online"]),
        ({**_OTHER_HOST, "REFINE_DIALECT": "litellm"}, []),
        ({**_OTHER_HOST, "REFINE_PLAIN_OPENAI": "1"}, []),
        ({"OPENROUTER_BASE_URL": "https://api.openai.com/v1"}, []),
    ],
)
def test_a_name_that_is_not_of_one_model_is_not_sent_to_openrouter(variables, refused):
    configured = settings(OPENROUTER_API_KEY="sk-1", **variables)

    found = []
    for model_id in ("author/model:online", "gpt-4o", "author/model:free", "rehearsal/wren"):
        try:
            require_one_model(model_id, configured)
        except InvalidValue:
            found.append(model_id)
            with (
                pytest.raises(ProviderError, match="must name one model") as fault,
                client_for(model_id, configured, is_demo=True),
            ):
                pass
            assert fault.value.kind == "model_name"

    assert found == refused


def test_the_rehearsal_model_stands_in_for_the_demo_account_or_where_nothing_else_can():
    cases = [
        (key, switch, is_demo)
        for key in ("", "sk-1")
        for switch in ("0", "1")
        for is_demo in (False, True)
        if not is_rehearsed(
            "rehearsal/wren",
            settings(OPENROUTER_API_KEY=key, REFINE_REHEARSAL=switch),
            is_demo=is_demo,
        )
    ]

    assert cases == [("", "0", False), ("sk-1", "0", False), ("sk-1", "1", False)]


def test_an_agent_that_cannot_be_rehearsed_is_not_asked_elsewhere():
    configured = settings(OPENROUTER_API_KEY="sk-1")

    with (
        pytest.raises(ProviderError, match="only agents of the demo account") as fault,
        client_for("rehearsal/wren", configured, is_demo=False),
    ):
        pass

    assert fault.value.kind == "no_rehearsal"
    warning = warning_about("rehearsal/wren", configured, is_demo=False)
    assert "only agents of the demo account" in (warning or "")
    assert warning_about("rehearsal/wren", configured, is_demo=True) is None


def test_the_dialect_is_that_of_the_settings_or_of_the_host():
    for base_url, named, name in (
        ("https://openrouter.ai/api/v1", "", "openrouter"),
        ("https://llm.example/v1", "", "openrouter"),
        ("https://api.deepseek.com/v1", "", "deepseek"),
        ("https://me.openai.azure.com/openai/v1", "", "azure"),
        ("https://notapi.deepseek.com.example/v1", "", "openrouter"),
        ("https://api.deepseek.com", "plain", "plain"),
        ("https://llm.example/v1", "litellm", "litellm"),
    ):
        configured = settings(OPENROUTER_BASE_URL=base_url, REFINE_DIALECT=named)
        assert dialect_of(configured).name == name, base_url
    assert dialect_of(settings(REFINE_DIALECT="litellm", REFINE_PLAIN_OPENAI="1")).name == "plain"


def test_an_unknown_dialect_is_refused_with_the_known_ones():
    with pytest.raises(SettingsError, match="REFINE_DIALECT must be one of openrouter, openai,"):
        dialect_of(settings(REFINE_DIALECT="klingon"))
