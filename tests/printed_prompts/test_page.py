"""docs/prompts.md says what the code says."""

from tests.printed_prompts.page import PAGE, printed


def test_the_page_prints_the_prompts_as_they_are(app, set_setting):
    set_setting(second_reading="on")

    now = printed(app)

    assert PAGE.read_text() == now, "docs/prompts.md is out of date: run `make prompts`"
