"""Finding things: from what needs attention to its cause, by filters, links and pages of lists."""

import re

import pytest
from playwright.sync_api import Page, expect

from refine.extensions import db
from refine.models import RefinementSession, User
from tests import factories
from tests.browser.history import lived
from tests.browser.visiting import button, heading, rows, state


@pytest.fixture
def sixty(admin: User) -> list[str]:
    """The names of sixty agents, of which every tenth is paused."""
    names = [f"Dunlin {number:02}" for number in range(60)]
    for number, name in enumerate(names):
        factories.agent(account=admin.account, name=name, paused=number % 10 == 0)
    db.session.commit()
    return names


def names_on(page: Page) -> list[str]:
    return rows(page, "Agents").get_by_role("rowheader").all_inner_texts()


def test_the_attention_list_leads_to_the_failed_session(desk: Page, admin: User) -> None:
    history = lived(admin)

    desk.goto("/")
    expect(desk.get_by_role("heading", name="2 agents whose last session failed")).to_be_visible()
    desk.get_by_role("link", name="All agents whose last session failed").click()
    expect(rows(desk, "Agents")).to_have_count(2)
    desk.get_by_role("link", name=history.failed.agent.name).click()
    expect(heading(desk, history.failed.agent.name)).to_be_visible()
    rows(desk, "Recent sessions").first.get_by_role("link").click()

    expect(state(desk, "failed")).to_be_visible()
    expect(desk.locator(".outcome")).to_contain_text("The provider cannot be reached (HTTP 503)")
    expect(desk.get_by_text(str(history.failed.id))).to_be_visible()


@pytest.mark.slow
def test_filters_are_in_the_url_and_follow_the_back_button(desk: Page, sixty: list[str]) -> None:
    desk.goto("/agents")
    desk.get_by_label("Name or model").fill("dunlin 1")
    desk.get_by_label("State").select_option("paused")
    button(desk, "Apply").click()

    expect(rows(desk, "Agents")).to_have_count(1)
    assert names_on(desk) == ["Dunlin 10"]
    expect(desk).to_have_url(re.compile(r"q=dunlin\+1&state=paused"))

    desk.go_back()

    expect(rows(desk, "Agents")).to_have_count(50)
    expect(desk.get_by_label("State")).to_have_value("")

    desk.go_forward()

    expect(rows(desk, "Agents")).to_have_count(1)
    expect(desk.get_by_label("Name or model")).to_have_value("dunlin 1")
    expect(desk.get_by_label("State")).to_have_value("paused")

    desk.get_by_role("link", name="Clear all").click()

    expect(rows(desk, "Agents")).to_have_count(50)


def test_a_link_to_a_filtered_list_survives_signing_in(
    desk: Page, page: Page, sixty: list[str]
) -> None:
    button(desk, "Sign out").click()
    expect(heading(desk, "Sign in to Refine")).to_be_visible()

    page.goto("/agents?q=dunlin&state=paused&sort=tokens")
    page.get_by_label("E-mail").fill("admin@example.org")
    page.get_by_label("Password").fill(factories.PASSWORD)
    button(page, "Sign in").click()

    expect(rows(page, "Agents")).to_have_count(6)
    expect(page.get_by_label("State")).to_have_value("paused")
    expect(page.get_by_role("columnheader", name="Tokens")).to_have_attribute(
        "aria-sort", "descending"
    )


def test_a_long_list_is_paged_without_gaps(desk: Page, sixty: list[str]) -> None:
    desk.goto("/agents?q=dunlin")
    first = names_on(desk)
    desk.get_by_role("link", name="Next →").click()
    expect(rows(desk, "Agents")).to_have_count(10)
    second = names_on(desk)
    expect(desk).to_have_url(re.compile("q=dunlin"))
    desk.get_by_role("link", name="← Previous").click()
    expect(rows(desk, "Agents")).to_have_count(50)

    assert first + second == sixty
    assert names_on(desk) == first


def test_a_sort_order_is_in_the_url(desk: Page, admin: User) -> None:
    for name, tokens in (("Alder", 10), ("Birch", 30), ("Cedar", 20)):
        agent = factories.agent(account=admin.account, name=name)
        factories.ledger(agent, tokens)
    db.session.commit()

    desk.goto("/agents")
    desk.get_by_role("region", name="Agents").get_by_role("link", name="Tokens").click()

    expect(desk).to_have_url(re.compile("sort=tokens"))
    expect(rows(desk, "Agents").first).to_contain_text("Birch")
    assert names_on(desk) == ["Birch", "Cedar", "Alder"]


def test_each_audit_filter_can_be_removed_alone(desk: Page, admin: User) -> None:
    one, other = (factories.agent(account=admin.account, name=name) for name in ("Wren", "Tern"))
    for agent in (one, other):
        RefinementSession.queue(agent, "cli").finish("skipped", "nothing to look at")
    db.session.commit()

    desk.goto(f"/audit?agent={one.id}&action=refinement_queued")
    expect(rows(desk, "Records")).to_have_count(1)
    desk.get_by_role("link", name="× Wren").click()

    expect(rows(desk, "Records")).to_have_count(2)
    expect(desk).to_have_url(re.compile("action=refinement_queued$"))
    expect(desk.get_by_label("Action")).to_have_value("refinement_queued")
