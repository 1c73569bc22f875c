"""Tables as cards: every cell says its role, and in which column it is."""

from markupsafe import Markup

from refine.models import User
from refine.web.lists import as_cards
from tests import factories
from tests.web.conftest import Browser

COLUMNS = ["Name", "Size", "<b>"]


def test_each_cell_has_the_name_of_its_column() -> None:
    row = Markup('<tr class="odd">\n<th scope="row">a</th><td>1</td><td class="number">2</td></tr>')

    assert as_cards(row + row, COLUMNS) == 2 * (
        '<tr role="row" class="odd">\n<th role="rowheader" scope="row">a</th>'
        '<td role="cell" data-label="Size">1</td>'
        '<td role="cell" data-label="&lt;b&gt;" class="number">2</td></tr>'
    )


def test_the_content_of_a_cell_stays_as_it_is() -> None:
    shown = Markup("<tr><td>{} <time>now</time><track></td></tr>").format("<td>")

    assert "&lt;td&gt; <time>now</time><track></td>" in as_cards(shown, COLUMNS)


def test_a_column_that_is_left_out_names_no_cell(dashboard: Browser, admin: User) -> None:
    factories.agent(account=admin.account)

    page = dashboard.get("/users").text

    assert '<td role="cell" data-label="Role">admin</td>' in page
    assert 'data-label="Account"' not in page
