"""The trial of `refine doctor --ask`: what is asked, and which advice is never given."""

import json
from typing import Any

import pytest
from cryptography.fernet import Fernet
from flask import Flask

from refine.cli.findings import about_answers, about_provider
from refine.cli.trial import Trial, made_up_entries, may_be_a_dialect, opening
from refine.errors import ProviderError
from refine.llm import dialects
from refine.llm.catalogue import Catalogue
from refine.llm.provider import Provider
from refine.refinement.prompting import LedgerExcerpt
from refine.rules.tokens import Room
from refine.settings import Settings
from tests import factories

MODEL = "test/model"
REFUSED = ProviderError("refused", kind="invalid_request", http_status=400)


def provider(base_url: str, dialect: str) -> Provider:
    """A provider whose list of models was asked for and is empty."""
    known = Provider(base_url, "key", dialects.named(dialect))
    known.catalogue = Catalogue(())
    return known


def settings() -> Settings:
    return Settings.from_environ(
        {
            "DATABASE_URL": "postgresql://db.example.org/refine",
            "SECRET_KEY": "a secret of the tests",
            "REFINE_ENCRYPTION_KEYS": Fernet.generate_key().decode(),
        }
    )


def test_made_up_memories_look_like_real_ones(app: Flask) -> None:
    real = factories.memory(factories.agent(), "a memory").ledger_entry()

    assert [list(entry) for entry in made_up_entries()] == [list(real)] * len(made_up_entries())


def test_made_up_memories_are_shown_as_sessions_show_memories(app: Flask) -> None:
    own = factories.agent(*(entry["content"] for entry in made_up_entries()))
    excerpt = LedgerExcerpt.of(own, room_tokens=10_000)

    _, user = opening(provider("https://llm.example.org/v1", "plain"), MODEL)

    assert [list(line) for line in entries_in(user["content"])] == [
        list(json.loads(line)) for line in excerpt.lines
    ]


def entries_in(text: str) -> list[dict[str, Any]]:
    """The entries of the ledger that a message shows."""
    return [json.loads(line) for line in text.splitlines() if line.startswith('{"id":')]


def test_the_cache_is_marked_as_in_sessions() -> None:
    anthropic = provider("https://openrouter.ai/api/v1", "openrouter")

    _, user = opening(anthropic, "anthropic/claude-sonnet-4.5")

    assert [part.get("cache_control") for part in user["content"]] == [{"type": "ephemeral"}, None]


@pytest.mark.parametrize(
    ("base_url", "dialect", "mark", "says"),
    [
        ("https://openrouter.ai/api/v1", "openrouter", "ok", "requests demand zero data retention"),
        (
            "https://openrouter.ai/api/v1",
            "plain",
            "warn",
            "in the dialect plain do not demand zero",
        ),
        ("https://api.deepseek.com", "deepseek", "warn", "agree on it with this provider"),
        ("https://llm.example.org/v1", "openrouter", "warn", "agree on it with this provider"),
        ("http://127.0.0.1:8080/v1", "plain", "ok", "the server is on this machine"),
    ],
)
def test_the_effect_of_zero_data_retention_is_explained(
    base_url: str, dialect: str, mark: str, says: str
) -> None:
    findings = about_provider(provider(base_url, dialect), MODEL, settings())

    (found,) = [finding for finding in findings if finding.name == "privacy"]
    assert found.mark == mark
    assert says in found.text


@pytest.mark.parametrize(
    ("base_url", "dialect", "is_asked"),
    [
        ("https://openrouter.ai/api/v1", "openrouter", False),
        ("https://openrouter.ai/api/v1", "plain", True),
        ("https://api.deepseek.com", "deepseek", False),
        ("https://llm.example.org/v1", "openrouter", True),
    ],
)
def test_asks_a_host_with_a_known_dialect_in_no_other(
    base_url: str, dialect: str, is_asked: bool
) -> None:
    room = Room.of(128_000)

    trial = Trial(provider(base_url, dialect), MODEL, room, 1, fault=REFUSED)

    assert may_be_a_dialect(trial) == is_asked


def test_without_time_it_says_what_to_set() -> None:
    trial = Trial(provider("https://llm.example.org/v1", "plain"), MODEL, Room.of(128_000), 0)

    (found,) = about_answers(trial.run(), settings())

    assert found.text.endswith("choose a faster model, or raise REFINE_MAX_SECONDS")
