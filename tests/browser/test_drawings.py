"""What is drawn as SVG can be seen."""

from playwright.sync_api import Page

from refine.extensions import db
from refine.models import User
from tests import factories


def test_the_overview_draws_each_outcome_in_its_colour(desk: Page, admin: User) -> None:
    for status in ("failed", "declined", "completed"):
        factories.ended(factories.agent("one", account=admin.account), status)
    db.session.commit()

    desk.goto("/")

    bars = desk.locator("[aria-labelledby=trend] svg path")
    fills = bars.evaluate_all("all => all.map(each => getComputedStyle(each).fill)")
    assert len(set(fills)) == 3
    assert "none" not in fills
