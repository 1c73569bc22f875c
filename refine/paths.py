"""An application that builds paths quickly: a page has dozens of links."""

from typing import Any
from urllib.parse import urlencode

from flask import Flask
from flask.globals import _cv_request
from werkzeug.routing import Rule

# What stays as it is in a query, as werkzeug writes it.
_KEPT = "!$'()*,/:;?@"


class Application(Flask):
    """Flask, but for how long it takes to build a path."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self._only_rules = dict[str, Rule]()
        super().__init__(*args, **options)

    def url_for(self, /, endpoint: str, **values: Any) -> str:
        """Return what Flask does, in a third of the time for the path of a page."""
        return self._path(endpoint, values) or super().url_for(endpoint, **values)

    def _path(self, endpoint: str, values: dict[str, Any]) -> str | None:
        """Return the path of an endpoint that has one rule; None for anything less simple."""
        rule = self._only_rules.get(endpoint) or self._only_rule(endpoint)
        context = _cv_request.get(None)  # without a proxy, which takes longer than the rest
        if rule is None or context is None:
            return None
        given = {name: value for name, value in values.items() if value is not None}
        if endpoint == "static":
            self.inject_url_defaults(endpoint, given)
        if not rule.arguments <= given.keys():
            return None
        built = rule.build({name: given.pop(name) for name in rule.arguments}, append_unknown=False)
        if built is None or any(name[0] == "_" for name in given):
            return None
        query = f"?{urlencode(given, doseq=True, safe=_KEPT)}" if given else ""
        return f"{context.request.root_path}{built[1]}{query}"

    def _only_rule(self, endpoint: str) -> Rule | None:
        rules = [rule for rule in self.url_map.iter_rules() if rule.endpoint == endpoint]
        if len(rules) != 1:
            return None
        return self._only_rules.setdefault(endpoint, rules[0])
