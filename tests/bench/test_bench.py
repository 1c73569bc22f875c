"""One table, and one last line that counts the goals."""

import re
from urllib.parse import urlsplit

import pytest
from flask import current_app

from bench.__main__ import main
from bench.pages import pages
from bench.world import TINY, seeded
from tests.web.test_every_route import READ

# Two spaces or more stand between the columns.
_CELLS = re.compile(r" {2,}")


def printed(capsys: pytest.CaptureFixture[str]) -> tuple[list[list[str]], str]:
    """The lines of the table, cut into cells, its head first; and the last line."""
    *lines, last = capsys.readouterr().out.splitlines()
    return [_CELLS.split(line.strip()) for line in lines], last


def test_every_benchmark_gives_figures_and_the_last_line_counts_them(capsys):
    main.main(["--size", "tiny"], standalone_mode=False)

    (head, *lines), last = printed(capsys)
    assert head == ["name", "ours", "floor", "ratio", "goal"]
    assert [line for line in lines if len(line) != 6 or line[4] == "–"] == []
    verdicts = [line[5] for line in lines]
    met, missed = verdicts.count("met"), verdicts.count("missed")
    assert met + missed == len(lines)
    assert last == f"goals: {met} met, {missed} missed"
    names = [line[0] for line in lines]
    assert len(names) == len(set(names))
    wanted = ("an edit, ledger of 40", "import of 20 memories", "overview, 5 agents")
    assert set(names).issuperset((*wanted, "GET /agents, 50 agents"))


# They are not framed, not pages, or like another one.
NOT_MEASURED = {
    "/audit/export.jsonl",
    "/forgotten",
    "/healthz",
    "/invitations/<secret>",
    "/metrics",
    "/profile/confirm",
    "/readyz",
    "/sign-in",
    "/sign-in/provider",
    "/sign-in/provider/callback",
    "/sign-in/second-factor",
    "/static/<path:filename>",
    "/wall/open",
}


def test_every_page_is_measured():
    with seeded(TINY) as world:
        routes = current_app.url_map.bind("localhost")
        paths = [urlsplit(page.path).path for page in pages(world)]
        rules = {routes.match(path, return_rule=True)[0].rule for path in paths}

    assert rules == READ.keys() - NOT_MEASURED
