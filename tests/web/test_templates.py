"""What templates hold, and what every page has: a menu, tables, static files."""

import re
from pathlib import Path

import pytest
from flask import Flask
from jinja2 import nodes
from markupsafe import Markup

from refine.extensions import db
from refine.models import Agent, User
from refine.web.lists import as_cards
from tests import factories
from tests.web.conftest import Browser

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


@pytest.fixture
def agent(admin: User) -> Agent:
    agent = factories.agent("one", account=admin.account)
    db.session.commit()
    return agent


def marked_in(page: str) -> list[str]:
    return re.findall(r'aria-current="page">([^<]+)', page)


@pytest.mark.parametrize(
    ("path", "area"),
    [
        ("/agents", "Agents"),
        ("/agents/many?work=refine", "Agents"),
        ("/sessions", "Sessions"),
        ("/schedule/run", "Schedule"),
    ],
)
def test_each_page_of_an_area_marks_the_area(
    dashboard: Browser, agent: Agent, path: str, area: str
) -> None:
    assert area in marked_in(dashboard.get(path).text)


COLUMNS = ["Name", "Size", "<b>"]


def test_each_cell_has_the_name_of_its_column() -> None:
    row = Markup('<tr class="odd">\n<th scope="row">a</th><td>1</td><td class="number">2</td></tr>')

    assert as_cards(row + row, COLUMNS) == 2 * (
        '<tr role="row" class="odd">\n<th role="rowheader" scope="row">a</th>'
        '<td role="cell" data-label="Size">1</td>'
        '<td role="cell" data-label="&lt;b&gt;" class="number">2</td></tr>'
    )


@pytest.fixture
def style(dashboard: Browser) -> str:
    """The URL of the style sheet, as pages name it."""
    found = re.search(r'href="(/static/refine\.css[^"]*)"', dashboard.get("/").text)
    assert found is not None
    return found[1]


def test_a_file_is_kept_under_the_url_that_pages_name(dashboard: Browser, style: str) -> None:
    assert "max-age=31536000" in dashboard.get(style).headers["Cache-Control"]


@pytest.mark.parametrize("ending", ["", "?v=0123456789ab"])
def test_a_file_is_not_kept_under_another_url(dashboard: Browser, style: str, ending: str) -> None:
    other = style.partition("?")[0] + ending

    assert dashboard.get(other).headers["Cache-Control"] == "no-cache"


def test_a_missing_file_is_not_found(dashboard: Browser) -> None:
    assert dashboard.get("/static/none.css?v=1").status_code == 404
