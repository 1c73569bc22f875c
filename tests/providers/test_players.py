"""The players are strict: each rule refuses the example that breaks it, and says so as documented.

A faithful client, which sends back what it was told, passes every rule.
"""

import copy
import json
from collections.abc import Iterator

import pytest
import requests

from refine.tools.refinement import DEFINITION
from tests.providers.checks import LIMITS, Asked, Body, Message, Rule
from tests.providers.player import Player
from tests.providers.rules import PROVIDERS, Provider
from tests.providers.shapes import Step, calls

EVERY = [pytest.param(provider, id=name) for name, provider in PROVIDERS.items()]
EVERY_RULE = [
    pytest.param(provider, rule, id=f"{name}: {rule.name}")
    for name, provider in PROVIDERS.items()
    for rule in provider.rules
]

# What stands beside tool calls where a provider does not take back what it answers there.
NO_CONTENT = {"llama-cpp": "", "plain": "", "anthropic": None}


def play(messages: list[Message]) -> Step:
    """Call the tool in each reply, with words beside every second one."""
    turn = sum(message["role"] == "assistant" for message in messages)
    search = {"action": "search", "query": "canary"}
    return calls(search, search, words="I will look." if turn % 2 else None)


@pytest.fixture
def player(request: pytest.FixtureRequest) -> Iterator[Player]:
    with Player(request.param, play) as played:
        yield played


def opening(provider: Provider) -> Body:
    """A first request as this provider takes it."""
    body: Body = {
        "model": provider.model,
        "messages": [
            {"role": "system", "content": "You are Wren."},
            {"role": "user", "content": "Here are your memories."},
        ],
        "tools": [copy.deepcopy(DEFINITION)],
        "stream": False,
    }
    for limit in LIMITS:
        limited = {**body, limit: 8_192}
        if not any(rule.check(asked(limited)) for rule in provider.rules):
            return limited
    raise AssertionError("no limit is accepted")


def asked(body: Body) -> Asked:
    return Asked(body, {"authorization": "Bearer key"})


def post(player: Player, body: Body, headers: dict[str, str] | None = None) -> requests.Response:
    headers = {"Authorization": "Bearer key"} if headers is None else headers
    with requests.Session() as http:
        http.trust_env = False
        url = f"{player.base_url}/chat/completions"
        return http.post(url, json=body, headers=headers, timeout=30)


def talk(player: Player, turns: int = 3) -> Body:
    """Return the request after so many turns of a client that repeats all it was told."""
    body = opening(player.provider)
    for _ in range(turns):
        response = post(player, body)
        assert response.status_code == 200, response.text
        message = response.json()["choices"][0]["message"]
        if player.provider.name in NO_CONTENT:
            message["content"] = message["content"] or NO_CONTENT[player.provider.name]
        results = [
            {"role": "tool", "tool_call_id": call["id"], "content": "{}"}
            for call in message["tool_calls"]
        ]
        body = {**body, "messages": [*body["messages"], message, *results]}
    return body


@pytest.mark.parametrize("player", EVERY, indirect=True)
def test_a_client_that_repeats_what_it_was_told_is_never_refused(player: Player) -> None:
    talk(player, turns=4)

    assert not player.refused
    assert len(player.said) == 4


@pytest.mark.parametrize(("player", "rule"), EVERY_RULE, indirect=["player"])
def test_a_request_that_breaks_a_rule_is_refused(player: Player, rule: Rule) -> None:
    body = copy.deepcopy(talk(player))
    headers = {"Authorization": "Bearer key"}
    rule.breach(body, headers)

    response = post(player, body, headers)

    (broken, where) = player.refused[-1]
    assert (broken.name, response.status_code) == (rule.name, rule.refusal.status), where
    assert response.json() == player.provider.envelope(rule.refusal, where)


@pytest.mark.parametrize("player", EVERY, indirect=True)
def test_an_answer_has_the_shape_that_every_client_reads(player: Player) -> None:
    response = post(player, opening(player.provider))

    answer = response.json()
    (choice,) = answer["choices"]
    assert (choice["finish_reason"], choice["message"]["role"]) == ("tool_calls", "assistant")
    for call in choice["message"]["tool_calls"]:
        assert json.loads(call["function"]["arguments"])["action"] == "search"
    assert answer["model"] == player.provider.answers_as
    assert answer["usage"]["prompt_tokens"] > answer["usage"]["completion_tokens"] > 0


@pytest.mark.parametrize("player", EVERY, indirect=True)
def test_every_list_is_served_and_no_other_path(player: Player) -> None:
    with requests.Session() as http:
        http.trust_env = False
        for path, body in player.provider.lists.items():
            assert http.get(f"{player.base_url}{path}", timeout=30).json() == body
        assert http.get(f"{player.base_url}/no-such-path", timeout=30).status_code == 404
    assert player.unknown_paths == [f"{player.provider.path}/no-such-path"]


def test_every_rule_and_provider_names_its_source() -> None:
    for name, provider in PROVIDERS.items():
        for source in (*(rule.source for rule in provider.rules), *provider.sources):
            assert source.startswith("https://"), (name, source)


def test_no_two_rules_of_a_provider_have_one_name() -> None:
    for name, provider in PROVIDERS.items():
        names = [rule.name for rule in provider.rules]
        assert len(names) == len(set(names)), name
