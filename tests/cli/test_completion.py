"""Shells complete commands and the names of agents."""

import socket
from pathlib import Path

import pytest

from refine.extensions import db
from refine.models import Account
from tests import factories
from tests.commands import UNUSED_PORT
from tests.forked import refine


@pytest.fixture(autouse=True)
def agents(demo: Account) -> dict[str, int]:
    """Agents by their names."""
    names = ("Wren", "Wrasse", "Trema", "Twin", "twin", "Two Words", "100%", "1000")
    made = {name: factories.agent(account=demo, name=name).id for name in names}
    db.session.commit()
    return made


def suggested(words: str, environ: dict[str, str]) -> dict[str, str]:
    """What fish is told to suggest for the last of these words, each with its help."""
    typed = words.split(" ")[-1]
    asked = {"_REFINE_COMPLETE": "fish_complete", "COMP_WORDS": words, "COMP_CWORD": typed}
    done = refine(environ={**environ, **asked}, seconds=9)  # a connection may take ten
    assert (done.returncode, done.stderr) == (0, "")
    values = [line.removeprefix("plain,").partition("\t") for line in done.stdout.split("\n")]
    return {value: about for value, _, about in values if value}


@pytest.mark.parametrize(
    "words",
    [
        *("refine run wr", "refine agent show WR", "refine agent set wr", "refine export wr"),
        *("refine session list --agent wr", "refine token add --agent wr", "refine import wr"),
    ],
)
def test_the_names_of_agents_are_suggested(environ: dict[str, str], words: str) -> None:
    assert list(suggested(words, environ)) == ["Wrasse", "Wren"]


def test_commands_are_suggested(environ: dict[str, str]) -> None:
    assert list(suggested("refine session re", environ)) == ["retry"]


def test_a_name_that_is_not_one_word_or_not_unique_is_suggested_by_its_id(
    agents: dict[str, int], environ: dict[str, str]
) -> None:
    assert suggested("refine run tw", environ) == {
        str(agents[name]): name for name in ("Twin", "twin", "Two Words")
    }


def test_nothing_is_suggested_where_the_agents_cannot_be_asked(
    environ: dict[str, str], tmp_path: Path
) -> None:
    away = f"postgresql://127.0.0.1:{UNUSED_PORT}/x"

    assert suggested("refine run wr", {**environ, "DATABASE_URL": away}) == {}
    assert suggested("refine run wr", {**environ, "SECRET_KEY": ""}) == {}
    assert suggested("refine run wr", {"REFINE_DATA_DIR": str(tmp_path / "none")}) == {}
    assert not (tmp_path / "none").exists()


def test_nobody_waits_for_a_database_that_does_not_answer(environ: dict[str, str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        away = f"postgresql://127.0.0.1:{silent.getsockname()[1]}/x"

        assert suggested("refine run wr", {**environ, "DATABASE_URL": away}) == {}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_for_each_shell_is_printed(environ: dict[str, str], shell: str) -> None:
    done = refine(environ={**environ, "_REFINE_COMPLETE": f"{shell}_source"})

    assert done.returncode == 0
    assert "_REFINE_COMPLETE" in done.stdout
