"""Bringing an agent the memories of a file."""

from pathlib import Path

from playwright.sync_api import FilePayload, Page, expect

from refine.extensions import db
from refine.models import User
from tests import factories
from tests.browser.visiting import button
from tests.transfer.files import fixture


def choose(desk: Page, file: bytes) -> None:
    payload: FilePayload = {"name": "agent.json", "mimeType": "application/json", "buffer": file}
    desk.get_by_label("File up to").set_input_files(payload)


def test_a_file_is_checked_then_imported_with_a_report(desk: Page, admin: User) -> None:
    agent = factories.agent(account=admin.account, name="Wren")
    db.session.commit()

    desk.goto(f"/agents/{agent.id}")
    desk.get_by_role("link", name="Import memories…").click()
    desk.get_by_label("Format").select_option("mem0")
    choose(desk, fixture("mem0.json"))
    button(desk, "Check only").click()
    expect(desk.get_by_text("2 memories can be read")).to_be_visible()
    db.session.rollback()
    assert agent.ledger.core_totals() == (0, 0)
    db.session.rollback()
    choose(desk, fixture("mem0.json"))  # a browser does not keep it; the format stays
    button(desk, "Import").click()

    expect(desk.get_by_text("2 memories imported: 2 core, 0 journal; 16 tokens")).to_be_visible()
    expect(desk.get_by_text("row 5: created_at lies in the future")).to_be_visible()
    db.session.rollback()
    assert agent.ledger.core_totals() == (2, 16)


def test_a_file_that_is_too_large_is_refused_with_advice(
    desk: Page, admin: User, tmp_path: Path
) -> None:
    agent = factories.agent(account=admin.account, name="Wren")
    db.session.commit()
    large = tmp_path / "agent.json"  # which the browser reads itself
    large.write_bytes(b" " * 12_000_000)

    desk.goto(f"/agents/{agent.id}/import")
    desk.get_by_label("Format").select_option("mem0")
    desk.get_by_label("File up to").set_input_files(large)
    button(desk, "Import").click()

    expect(desk.get_by_role("alert").filter(has_text="larger than 4 MB")).to_be_visible()
