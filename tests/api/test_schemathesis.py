"""Requests that the document allows, and some that it does not, are answered as it says."""

import contextvars
from collections.abc import Iterator

import pytest
import schemathesis
from flask import Flask
from hypothesis import HealthCheck, given, settings, strategies as st
from schemathesis import Case, GenerationMode
from schemathesis.checks import CheckFunction, not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from refine import create_app
from refine.api.routing import OPERATIONS
from refine.extensions import db
from refine.models import ApiToken
from refine.settings import Settings
from tests import factories
from tests.api.test_every_operation import SENT, name_of
from tests.web.conftest import ended_session, person

CHECKS: list[CheckFunction] = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
# Reads any text that a model wrote, and says what is wrong with it.
TAKES_ANYTHING = ("call_tool",)
# The schema cannot say that a message must hold text, nor how many decimals a threshold may have.
NEEDS_MORE = ("send_conversation", "change_agent")


@pytest.fixture(scope="module")
def unlimited(migrated_app: Flask, environ: dict[str, str]) -> Iterator[Flask]:
    """The application without rate limits."""
    many = {"REFINE_API_READS_PER_MINUTE": "1000000", "REFINE_API_WRITES_PER_MINUTE": "1000000"}
    app = create_app(Settings.from_environ({**environ, **many}))
    yield app
    with app.app_context():
        db.engine.dispose()


pytestmark = pytest.mark.slow

# One operation of each kind in the gate, all others nightly.
IN_THE_GATE = ("save_memory", "list_memories", "change_agent")
MODES = [
    pytest.param(
        each,
        mode,
        id=f"{name_of(each)} {mode.value}",
        marks=() if each.view.__name__ in IN_THE_GATE else pytest.mark.nightly,
    )
    for each in OPERATIONS
    for mode in GenerationMode
    if mode is GenerationMode.POSITIVE
    or each.bearer is not None  # others have nothing to get wrong
]


@pytest.mark.parametrize(("each", "mode"), MODES)
def test_answers_conform_to_the_document(app, unlimited, redis, each, mode):
    agent = factories.agent()
    session = ended_session(agent, factories.ledger(agent, *[25] * 20)[0])
    grant = factories.live_grant(agent, person(account=agent.account))
    token, own = ApiToken.mint(account=agent.account, agent=agent)
    _, platform = ApiToken.mint(account=agent.account)
    things = {
        "agent_id": agent.id,
        "token_id": token.id,
        "session_id": str(session.id),
        "grant_id": str(grant.id),
        "conversation_id": str(factories.extraction(agent).id),
        "name": "self_authoring",
    }
    db.session.commit()
    schema = contextvars.Context().run(
        schemathesis.openapi.from_wsgi, "/api/v1/openapi.json", unlimited
    )
    operation = schema[each.path][each.method]
    headers = {"Authorization": f"Bearer {own if each.bearer == 'agent' else platform}"}
    checks = [*CHECKS]
    if mode is GenerationMode.NEGATIVE and each.view.__name__ not in TAKES_ANYTHING:
        checks.append(negative_data_rejection)

    statuses: set[int] = set()

    @settings(
        max_examples=12,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode), of_things=st.booleans())
    def ask(case: Case, of_things: bool) -> None:
        if of_things and mode is GenerationMode.POSITIVE:
            known = {name: things[name] for name in case.path_parameters or {}}
            case.path_parameters = {**(case.path_parameters or {}), **known}
            if each.view.__name__ in NEEDS_MORE:
                case.body = SENT[each.view.__name__]
        answer = contextvars.Context().run(case.call, headers=headers)
        case.validate_response(answer, checks=checks)
        statuses.add(answer.status_code)

    ask()

    is_done = any(status < 400 for status in statuses)
    assert is_done or mode is GenerationMode.NEGATIVE, statuses
