"""Somebody drives both worlds in step, and notes whatever differs in what comes back.

Compared are status, headers, body, the statements that the database was sent (the time class), and
after each action every stored row.
"""

import difflib
import itertools
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from html import unescape
from typing import Any, NamedTuple
from urllib.parse import quote_plus

import flask
from flask import Flask
from werkzeug.datastructures import ImmutableMultiDict
from werkzeug.exceptions import HTTPException
from werkzeug.test import TestResponse

from refine.extensions import db
from refine.models import AuditLog
from tests.api.conftest import bearing
from tests.guessing.worlds import GUESS, OTHER, Things, Worlds, same_circumstances
from tests.web.conftest import Browser, browser_of, browser_with

_PLACEHOLDER = re.compile(r"<(?:\w+:)?(\w+)>")
_SELECT = re.compile(r'<select[^>]* name="([^"]+)".*?</select>', re.DOTALL)
_OPTION = re.compile(r'<option[^>]* value="([^"]*)"')
_FIRST_REQUEST = 100
_SHOWN_CHARACTERS = 600
_OPTIONS_TRIED = 10  # actions of records are dozens

# Headers that an application may look at.
GUESSING_HEADERS = dict.fromkeys(
    ("Accept", "Accept-Language", "HX-Current-URL", "If-Match", "If-None-Match", "Referer"), GUESS
)


class Asked(ImmutableMultiDict[str, str]):
    """The parameters or fields of a request; notes what the application looks for, by route."""

    of_route: defaultdict[str, set[str]] = defaultdict(set)

    def get(self, key: str, *args: Any, **kwargs: Any) -> Any:
        self._note(key)
        return super().get(key, *args, **kwargs)

    def getlist(self, key: str, *args: Any, **kwargs: Any) -> Any:
        self._note(key)
        return super().getlist(key, *args, **kwargs)

    def __getitem__(self, key: str) -> Any:
        self._note(key)
        return super().__getitem__(key)

    def __contains__(self, key: object) -> bool:
        self._note(str(key))
        return super().__contains__(key)

    def _note(self, key: str) -> None:
        if key != "csrf_token" and flask.request.url_rule is not None:
            self.of_route[flask.request.url_rule.rule].add(key)


class NotingRequest(flask.Request):
    """A request of the pages, or of the API, which looks for its parameters by its schemas."""

    parameter_storage_class = Asked


class Route(NamedTuple):
    rule: str
    methods: set[str]


Fields = dict[str, Any]
# The fields of a route's form.
Form = Callable[[str], Fields]


def routes_of(app: Flask, *, pages: bool) -> list[Route]:
    """The routes of the pages, or of the API."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for rule in app.url_map.iter_rules():
        if rule.rule.startswith("/api/") != pages:
            found[rule.rule] |= rule.methods or set()
    return [Route(rule, methods) for rule, methods in sorted(found.items())]


def paths_of(rule: str, things: Things) -> list[str]:
    """Every URL of a route that names something of these."""
    values: dict[str, list[Any]] = {
        "agent_id": things.agents,
        "memory_id": things.memories,
        "grant_id": things.grants,
        "session_id": things.sessions,
        "conversation_id": things.tasks,
        "record_id": things.records,
        "token_id": things.tokens,
        "user_id": things.users,
        "account_id": things.accounts,
        "sign_in_id": [1],
        "factor_id": [1],
        "webhook_id": things.endpoints,
        "delivery_id": things.deliveries,
        "secret": [*things.invitations, GUESS],
        "filename": ["refine.css", GUESS],
        "name": ["save_memory", "self_authoring", GUESS],
    }
    names = _PLACEHOLDER.findall(rule)
    assert values.keys() >= set(names), f"not driven: {rule}; nothing is known for its placeholders"
    pattern = _PLACEHOLDER.sub("{}", rule)
    if rule in ("/access/new", "/agents/many"):
        return [f"{rule}?agent={id_}&work=pause" for id_ in things.agents]
    return [pattern.format(*each) for each in itertools.product(*(values[n] for n in names))]


class Difference(NamedTuple):
    what: str
    request: str
    detail: str = ""


class Pair:
    """Somebody's two clients, one for each world."""

    def __init__(self, worlds: Worlds, client_of: Callable[[Flask], Any]) -> None:
        self.worlds = worlds
        self.app = worlds.sides[0].app
        self.differences: list[Difference] = []
        self.requests = 0
        self.accepted: set[tuple[str, str]] = set()
        self._client_of = client_of
        self._sign_in_again()

    @classmethod
    def of_browsers(cls, worlds: Worlds, who: str) -> "Pair":
        """Browsers in which this user is signed in, or nobody."""
        secret = worlds.things.sign_ins.get(who)
        return cls(worlds, lambda app: browser_with(app, secret) if secret else with_token(app))

    @classmethod
    def of_programs(cls, worlds: Worlds, who: str) -> "Pair":
        """Programs that bear this one's token."""
        return cls(worlds, lambda app: bearing(app, worlds.things.bearers.get(who)))

    def _sign_in_again(self) -> None:
        """Take new clients: the last action may have ended the sign-in."""
        self._clients = []
        for side in self.worlds.sides:
            with same_circumstances(_FIRST_REQUEST):
                self._clients.append(self._client_of(side.app))

    def ask(self, method: str, path: str, **options: Any) -> TestResponse:
        """Send the request to both worlds, and compare; return the first world's answer."""
        self.requests += 1
        answers, sent = [], []
        for side, client in zip(self.worlds.sides, self._clients, strict=True):
            side.statements.clear()
            with same_circumstances(_FIRST_REQUEST + self.requests):
                answers.append(client.open(path, method=method, **options))
            sent.append(list(side.statements))
        name = f"{method} {path} {_summary(options)}"
        self._compare(name, answers, sent)
        asked_for = answers[0].request.path
        if answers[0].status_code < 400 and (rule := self._rule_of(method, asked_for)):
            self.accepted.add((method, rule))
        return answers[0]

    def act(self, method: str, path: str, **options: Any) -> TestResponse:
        """Send an action to both worlds as they were; compare what the next page says, and rows.

        The rows of a refused one are compared with those of the next.
        """
        answer = self.ask(method, path, **options)
        if answer.status_code >= 400:
            return answer
        if (location := answer.headers.get("Location", "")).startswith("/"):
            self.ask("GET", location)
        if self.compare_rows(f"{method} {path} {_summary(options)}"):
            self.worlds.restore()
            self._sign_in_again()
        return answer

    def compare_rows(self, name: str) -> bool:
        """Compare all that is stored; tell whether it has changed."""
        rows = [side.open_rows() for side in self.worlds.sides]
        self._differ(name, "rows", *rows)
        return rows != [side.kept for side in self.worlds.sides]

    def submit(self, path: str, fields: Fields) -> None:
        """Send a form to both worlds as they were."""
        self.act("POST", path, data=self._with_token(fields))

    def _with_token(self, fields: Fields) -> Fields:
        return {"csrf_token": self._clients[0].token(), **fields}

    def _rule_of(self, method: str, path: str) -> str | None:
        urls = self.app.url_map.bind("")
        try:
            return urls.match(path, method, return_rule=True)[0].rule
        except HTTPException:
            return None

    def _compare(self, name: str, answers: list[TestResponse], sent: list[list[str]]) -> None:
        one, two = answers
        self._differ(name, "status", one.status, two.status)
        self._differ(name, "headers", list(one.headers), list(two.headers))
        self._differ(name, "statements", *sent)
        if one.data != two.data:
            self._differ(name, "body", *self._without_record_hashes(answers))
        if one.status_code >= 500:
            self.differences.append(Difference("fails", name))
        if OTHER in f"{two.headers}{two.text}":
            self.differences.append(Difference("shows what the agent keeps", name))

    def _without_record_hashes(self, answers: list[TestResponse]) -> Iterator[list[str]]:
        """Replace the hashes of records, which are chained with a key."""
        for side, answer in zip(self.worlds.sides, answers, strict=True):
            said = answer.text
            with side.app.app_context():
                for hashed, id_ in db.session.execute(db.select(AuditLog.hash, AuditLog.id)):
                    said = said.replace(hashed, f"hash of record {id_}")
            yield said.splitlines()

    def _differ(self, name: str, what: str, one: Any, two: Any) -> None:
        if one == two:
            return
        if isinstance(one, list):
            lines = difflib.unified_diff(list(map(str, one)), list(map(str, two)), n=0, lineterm="")
            one, two = "", " | ".join(list(lines)[3:7])
        self.differences.append(Difference(what, name, f"{one} {two}"[:_SHOWN_CHARACTERS]))


def read_everything(pair: Pair, *, offers: bool) -> None:
    """Ask for every page, with the guess in every parameter that it looks for.

    And with what it ``offers``: filters, orders, other pages of a list.
    """
    for route in routes_of(pair.app, pages=True):
        if "GET" in route.methods:
            paths = paths_of(route.rule, pair.worlds.things)
            for path in paths:
                pair.ask("GET", path)
            if offers:
                _take_offers(pair, route.rule, paths[0])
            _filter_by_guess(pair, route.rule, paths[0])


def do_everything(pair: Pair, form: Form) -> None:
    """Send every form as its page would, then with a guess in one field after the other.

    What is refused leaves both worlds as they were; their rows are compared once more in the end.
    """
    for route in routes_of(pair.app, pages=True):
        if "POST" in route.methods:
            paths = paths_of(route.rule, pair.worlds.things)
            for path in paths:
                pair.submit(path, form(route.rule))
            for fields in _guesses(route.rule, form(route.rule)):
                pair.submit(paths[0], fields)
    pair.compare_rows("in the end")


def _guesses(rule: str, fields: Fields) -> Iterator[Fields]:
    """Fill one field after the other with the guess, then all; whatever the view looks for."""
    names = Asked.of_route[rule]
    names |= fields.keys()
    for name in _growing(names):
        yield {**fields, name: GUESS}
    yield dict.fromkeys(names, GUESS)


def _take_offers(pair: Pair, rule: str, path: str) -> None:
    said = pair.ask("GET", path).text
    for found in _SELECT.finditer(said):
        if found[1] in Asked.of_route[rule]:
            for option in _OPTION.findall(found[0])[:_OPTIONS_TRIED]:
                pair.ask("GET", f"{path}{_joint(path)}{found[1]}={unescape(option)}")
    # other pages, orders and kinds
    for link in sorted(set(map(unescape, re.findall(r'href="([^"]*[?][^"]*)"', said)))):
        if link.partition("?")[0] == path.partition("?")[0]:
            pair.ask("GET", link)


def _filter_by_guess(pair: Pair, rule: str, path: str) -> None:
    pair.ask("GET", path, headers=GUESSING_HEADERS)
    for name in _growing(Asked.of_route[rule]):
        pair.ask("GET", f"{path}{_joint(path)}{name}={quote_plus(GUESS)}")


def _joint(path: str) -> str:
    return "&" if "?" in path else "?"


def _growing(names: set[str]) -> Iterator[str]:
    """Every name once, also those that are added meanwhile."""
    done: set[str] = set()
    while left := sorted(names - done):
        done.add(left[0])
        yield left[0]


def with_token(app: Flask) -> Browser:
    """A browser that is not signed in, with the token of a form."""
    browser = browser_of(app)
    browser.token()
    return browser


def _summary(options: dict[str, Any]) -> str:
    shown = {name: sorted(each) if name == "headers" else each for name, each in options.items()}
    return str(shown)[:200] if shown else ""
