"""`refine bench bill`: a session counted on a database of its own."""

import json
from pathlib import Path

import pytest
from flask import Flask

from refine.models import Agent
from tests.cli.conftest import Run, problem, row_counts


def test_bill_prints_each_layout_and_the_promises_and_writes_json(
    run: Run, ledger: Agent, tmp_path: Path
) -> None:
    file, before = tmp_path / "bill.json", row_counts()

    done = run("bench", "bill", "--memories", "50", "--json", file)

    assert (done.returncode, done.stderr) == (0, "")
    heads, sent, *_, naive, _blank, first, second, promises = done.stdout.splitlines()
    assert heads.startswith("memories  layout            requests  prompt tokens")
    assert sent.split()[:3] == ["50", "Refine", "5"]
    assert naive.split()[:3] == ["50", "naive", "12"]
    assert first.startswith("At most 50% of the naive prompt tokens: 4")
    assert second.startswith("At least 90% an unchanged prefix after consent: 9")
    assert promises == "Promises: kept"
    written = json.loads(file.read_text())
    assert written["calls_per_reply"] == 4
    assert [each["memories"] for each in written["ledgers"]] == [50]
    assert written["ledgers"][0]["bills"]["naive"]["requests"] == 12
    assert written["broken_promises"] == []
    assert row_counts() == before


@pytest.mark.slow
def test_bill_fails_if_a_promise_is_broken(app: Flask, run: Run) -> None:
    done = run("bench", "bill", "--memories", "50", "--calls", "1")

    assert done.returncode == 1
    assert "of the naive prompt tokens with 50 memories" in done.stdout.splitlines()[-1]


@pytest.mark.parametrize("sizes", ["", "10", "100,many", "5000"])
def test_bill_takes_only_sizes_that_it_can_run(app: Flask, run: Run, sizes: str) -> None:
    message = problem(run("bench", "bill", "--memories", sizes), code=2)

    assert "numbers from 50 to 2,000, separated by commas" in message
