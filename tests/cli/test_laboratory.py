"""`refine bench survival` and `refine evaluate`: on a database of their own, models judged."""

import json

from tests.cli.conftest import row_counts

SMALL = ("--agents", 1, "--weeks", 2, "--memories", 8)


def test_survival_prints_a_summary_and_writes_its_weeks_as_json(run, ledger, tmp_path):
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
