"""Tables as cards: every cell says its role, and in which column it is."""

from markupsafe import Markup

from refine.web.lists import as_cards

COLUMNS = ["Name", "Size", "<b>"]


def test_each_cell_has_the_name_of_its_column() -> None:
    row = Markup('<tr class="odd">\n<th scope="row">a</th><td>1</td><td class="number">2</td></tr>')

    assert as_cards(row + row, COLUMNS) == 2 * (
        '<tr role="row" class="odd">\n<th role="rowheader" scope="row">a</th>'
        '<td role="cell" data-label="Size">1</td>'
        '<td role="cell" data-label="&lt;b&gt;" class="number">2</td></tr>'
    )
