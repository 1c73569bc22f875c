"""docs/prompts.md says what the code says."""

from dataclasses import replace

import pytest
from flask import Flask

from tests.printed_prompts.page import PAGE, printed


def test_the_page_prints_the_prompts_as_they_are(
    app: Flask, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = replace(app.extensions["refine.settings"], second_reading="on")
    monkeypatch.setitem(app.extensions, "refine.settings", usual)

    now = printed(app)

    assert PAGE.read_text() == now, "docs/prompts.md is out of date: run `make prompts`"
