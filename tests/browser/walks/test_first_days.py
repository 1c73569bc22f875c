"""The first days: joining, a first session, settings, a schedule, a colleague."""

import pytest
from flask import Flask

from refine import demo
from refine.extensions import db
from refine.models import Agent, Invitation
from tests import factories
from tests.browser.visiting import state
from tests.browser.walks.visitor import Visitor


@pytest.mark.slow
def test_the_first_hour(app: Flask, visitor: Visitor, worker: None) -> None:
    account = demo.load_into_empty_database()
    invited = factories.user(account=account, email="first@example.org", site_admin=True)
    invited.password_hash = None
    secret = Invitation.issue(invited)
    db.session.commit()

    visitor.go(f"/invitations/{secret}")
    visitor.arrives_at("Welcome to Refine")
    visitor.fill("Password", "a long enough password")
    visitor.fill("Repeat password", "a long enough password")
    visitor.press("Join")
    visitor.arrives_at("Overview")
    visitor.sees("First steps")
    visitor.press("Begin with Wren")
    visitor.arrives_at("Session of Wren")
    visitor.waits_for(visitor.page.get_by_text("Wren consented and is working."))
    visitor.waits_for(state(visitor.page, "completed"))
    visitor.sees("233 tokens fewer in every prompt (15%)")

    visitor.press("Sign out")
    visitor.arrives_at("Sign in to Refine")
    visitor.sign_in("first@example.org", "a long enough password")
    visitor.follow("Ask Wren…")
    visitor.arrives_at("Ask Wren for access")


@pytest.mark.slow
def test_a_colleague_joins(at_work: Visitor, visitor: Visitor) -> None:
    at_work.menu("Users")
    invitation = at_work.page.get_by_role("region", name="Invite to Saltmarsh")
    at_work.fill("E-mail", "colleague@example.org", of=invitation)
    at_work.choose("Role", "viewer (read-only)")
    at_work.press("Invite")
    at_work.sees("Send this link to")
    link = at_work.page.get_by_label("Invitation link").input_value()
    at_work.press("Sign out")
    at_work.arrives_at("Sign in to Refine")

    visitor.go(link)
    visitor.fill("Password", "another long password")
    visitor.fill("Repeat password", "another long password")
    visitor.press("Join")
    visitor.arrives_at("Overview")
    visitor.menu("Users")

    visitor.sees("colleague@example.org")
    assert visitor.page.get_by_role("button", name="Invite", exact=True).count() == 0


def test_settings_are_corrected_and_saved(at_work: Visitor, wren: Agent) -> None:
    at_work.menu("Agents")
    at_work.follow("Wren")
    at_work.follow("Settings")
    at_work.fill("Core memory budget", "plenty")
    at_work.press("Save")
    at_work.sees("Core memory budget must be")
    at_work.fill("Core memory budget", "3000")
    at_work.press("Save")

    at_work.sees("Saved")
    db.session.refresh(wren)
    assert wren.core_token_budget == 3_000


def test_a_schedule_is_picked_and_run_at_once(at_work: Visitor, wren: Agent) -> None:
    at_work.menu("Schedule")
    at_work.tick("Days and time")
    at_work.tick("Wed")
    at_work.fill("Time", "05:30")
    at_work.press("Save")
    at_work.sees("Saved")
    at_work.follow("Run now…")
    at_work.sees("1 agent will be asked for a session within a minute")
    at_work.press("Ask 1 agent")
    at_work.arrives_at("Schedule")

    db.session.rollback()
    assert wren.account.schedule == "30 5 * * 1,3"
