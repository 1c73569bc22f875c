"""What templates hold, and what every page has: a menu, tables, static files."""

import re
from pathlib import Path

import pytest
from flask import Flask
from jinja2 import nodes

from tests.web.conftest import Browser

TEMPLATES = Path(__file__).parents[2] / "templates"
NAMES = sorted(str(path.relative_to(TEMPLATES)) for path in TEMPLATES.rglob("*.*"))


def parsed(app: Flask, source: str) -> nodes.Template:
    return app.jinja_env.parse(source)


def compared_words(template: nodes.Template) -> list[str]:
    """The words that a template compares anything with: statuses, kinds, roles …"""
    return [
        word.value
        for comparison in template.find_all(nodes.Compare)
        for word in comparison.find_all(nodes.Const)
        if isinstance(word.value, str)
    ]


@pytest.mark.parametrize("name", NAMES)
def test_a_template_compares_no_words_and_computes_nothing(migrated_app, name):
    template = parsed(migrated_app, (TEMPLATES / name).read_text())
    computed = (nodes.Add, nodes.Sub, nodes.Mul, nodes.Div, nodes.FloorDiv, nodes.Mod, nodes.Pow)

    assert compared_words(template) == []
    assert [node.lineno for node in template.find_all(computed)] == []


@pytest.mark.parametrize("name", NAMES)
def test_every_form_that_acts_has_an_id(name):
    """Else a page that changes in place may make another action of it, under the focus."""
    forms = re.findall(r'<form [^>]*method="post"[^>]*', (TEMPLATES / name).read_text())

    assert [form for form in forms if ' id="' not in form] == []


@pytest.fixture
def style(dashboard: Browser) -> str:
    """The URL of the style sheet, as pages name it."""
    found = re.search(r'href="(/static/refine\.css[^"]*)"', dashboard.get("/").text)
    assert found is not None
    return found[1]


def test_a_file_is_kept_under_the_url_that_pages_name_alone(dashboard, style):
    plain = style.partition("?")[0]

    assert "max-age=31536000" in dashboard.get(style).headers["Cache-Control"]
    for other in (plain, f"{plain}?v=0123456789ab"):
        assert dashboard.get(other).headers["Cache-Control"] == "no-cache", other
