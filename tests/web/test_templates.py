"""Templates only show: what a page says about a state is decided in Python."""

import re
from pathlib import Path

import pytest
from flask import Flask
from jinja2 import nodes

TEMPLATES = Path(__file__).parents[2] / "templates"
NAMES = sorted(str(path.relative_to(TEMPLATES)) for path in TEMPLATES.rglob("*.html"))
MAX_COLUMNS = 120


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
def test_a_template_compares_no_words_and_computes_nothing(migrated_app: Flask, name: str) -> None:
    template = parsed(migrated_app, (TEMPLATES / name).read_text())
    computed = (nodes.Add, nodes.Sub, nodes.Mul, nodes.Div, nodes.FloorDiv, nodes.Mod, nodes.Pow)

    assert compared_words(template) == []
    assert [node.lineno for node in template.find_all(computed)] == []


@pytest.mark.parametrize("name", NAMES)
def test_every_form_that_acts_has_an_id(name: str) -> None:
    """Else a page that changes in place may make another action of it, under the focus."""
    forms = re.findall(r'<form [^>]*method="post"[^>]*', (TEMPLATES / name).read_text())

    assert [form for form in forms if ' id="' not in form] == []


@pytest.mark.parametrize(
    "source",
    [
        '{% if session.status == "queued" %}{% endif %}',
        '{{ "all" if grant.status in ("requested", "granted") }}',
        '{% for each in memories if each.kind != "core" %}{% endfor %}',
    ],
)
def test_the_check_notices_a_compared_word(migrated_app: Flask, source: str) -> None:
    assert compared_words(parsed(migrated_app, source))


def test_no_line_is_wider_than_an_editor() -> None:
    wide = [
        (name, number)
        for name in NAMES
        for number, line in enumerate((TEMPLATES / name).read_text().splitlines(), 1)
        if len(line) > MAX_COLUMNS
    ]

    assert wide == []
