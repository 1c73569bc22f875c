"""The files for platforms, containers and systemd name commands, settings and files that exist."""

import json
import re
import shlex
import tomllib
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from refine.cli import refine
from refine.settings import _PARSERS, variable_of
from tests.supply.locked import ROOT

DEPLOY = ROOT / "deploy"
SETTINGS = {variable_of(name) for name in _PARSERS}

PROCFILE = dict(re.findall(r"^(\w+): (.+)$", (ROOT / "Procfile").read_text(), re.MULTILINE))
APP = json.loads((ROOT / "app.json").read_text())
FLY = tomllib.loads((ROOT / "fly.toml").read_text())
RENDER = yaml.safe_load((ROOT / "render.yaml").read_text())
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text())

RENDERED = [each for each in RENDER["services"] if each["type"] != "keyvalue"]
OURS = {name: each for name, each in COMPOSE["services"].items() if "build" in each}
SERVICES = {"web", "worker", "clock"}


def commands() -> Iterator[list[str]]:
    """What is called after ``refine``."""
    for line in (*PROCFILE.values(), *(each["startCommand"] for each in RENDERED)):
        yield shlex.split(line.partition(" refine ")[2].partition(" $")[0])
    yield shlex.split(RENDERED[0]["preDeployCommand"].partition(" refine ")[2])
    yield from (each["command"] for each in OURS.values())
    yield from ([each] for each in FLY["processes"].values())
    yield shlex.split(FLY["deploy"]["release_command"])


@pytest.mark.parametrize("command", list(commands()), ids=" ".join)
def test_every_command_exists(command):
    found: Any = refine
    for word in command:
        found = found.get_command(None, word)

    assert command
    assert found is not None


def test_each_platform_runs_the_same_services():
    assert set(PROCFILE) == {*SERVICES, "release"}
    assert set(APP["formation"]) == set(FLY["processes"]) == set(OURS) == SERVICES
    assert {each["name"].removeprefix("refine-") for each in RENDERED} == SERVICES


def test_every_variable_is_a_setting():
    named = {*APP["env"], *FLY["env"], *COMPOSE["x-refine"]["environment"]}
    named |= {each["key"] for service in RENDERED for each in service["envVars"]}

    assert named <= SETTINGS
    assert {"DATABASE_URL", "REDIS_URL", "SECRET_KEY", "REFINE_ENCRYPTION_KEYS"} <= named


def test_the_image_holds_what_runs_and_no_more():
    copied = set(
        re.findall(r"^COPY (\w[\w.]+) /", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    )
    sent = set(re.findall(r"^!(.+)$", (ROOT / ".dockerignore").read_text(), re.MULTILINE))
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]

    assert copied == sent == {"requirements.txt", *wheel["targets"]["wheel"]["only-include"]}


def test_units_call_the_installed_command():
    started = {
        unit.name: re.findall(r"^ExecStart=.*?/opt/refine/bin/refine (\S+)", unit.read_text(), re.M)
        for unit in DEPLOY.glob("systemd/*.service")
    }

    assert started == {
        "refine@.service": ["%i"],
        "refine-upgrade.service": ["db"],
        "refine-backup.service": ["backup"],
    }
