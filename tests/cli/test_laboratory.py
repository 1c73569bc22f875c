"""`refine bench survival` and `refine evaluate`: on a database of their own, models judged."""

import json
from pathlib import Path

import pytest
from flask import Flask

from bench.playing import serving
from refine import cli
from refine.models import Agent
from tests.cli.conftest import Run, problem, row_counts

SMALL = ("--agents", 1, "--weeks", 2, "--memories", 8)


def test_survival_prints_a_summary_and_writes_its_weeks_as_json(
    run: Run, ledger: Agent, tmp_path: Path
) -> None:
    file, before = tmp_path / "survival.json", row_counts()

    done = run("bench", "survival", *SMALL, "--models", "careful", "--json", file)

    assert (done.returncode, done.stderr) == (0, "")
    assert "After week 2, 1 agents:" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("careful")
    assert done.stdout.rstrip().endswith("met")
    written = json.loads(file.read_text())
    assert written["scale"]["memories"] == 8
    assert [week["week"] for week in written["models"]["careful"]["weeks"]] == [1, 2]
    assert written["models"]["careful"]["missed"] == []
    assert row_counts() == before


def test_evaluate_prints_a_table_and_keeps_nothing(run: Run, ledger: Agent) -> None:
    before = row_counts()

    done = run("evaluate", "rehearsal/any", "--agents", "2")

    first, heads, one, two, total = done.stdout.splitlines()
    assert done.returncode == 0
    assert first == "rehearsal/any, answered by the rehearsal model:"
    assert heads.startswith("agent  outcome    duplicates united  wrong merges  lost")
    assert [row.split()[0] for row in (one, two, total)] == ["1", "2", "all"]
    assert row_counts() == before


def test_evaluate_as_json_asks_the_configured_provider(app: Flask, run: Run) -> None:
    with serving() as url:
        done = run("evaluate", "trial/careful", "--agents", 1, "--json", OPENROUTER_BASE_URL=url)

    found = json.loads(done.stdout)
    assert found["answered_by"] == url
    assert found["all"]["united"] == found["all"]["duplicates"] > 0
    assert found["agents"][0]["status"] == "completed"


@pytest.mark.parametrize("name", ["bench", "evaluate"])
def test_says_plainly_where_the_laboratory_is_missing(
    app: Flask, run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    monkeypatch.setattr(cli, "_ROOT", tmp_path)

    assert "it is part of Refine's repository" in problem(run(name, "anything"))
    assert f"  {name} " not in run("--help").stdout
