"""The lock: every package in one version, with its hashes, from wherever the machine gets them."""

import ast
import re
import sys
import tomllib
from collections.abc import Iterable
from importlib.metadata import distribution, packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.supply.locked import DEVELOPMENT, LOCAL, ROOT, RUNTIME, locked_in

LOCKS = [RUNTIME, LOCAL, DEVELOPMENT]
FILES = pytest.mark.parametrize("file", LOCKS, ids=lambda file: file.name)

# These number each release as a major one, so that a bound would only say "not the next".
UNBOUNDED = {"cryptography", "rich", "structlog", "tzdata"}

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
DIRECT = [Requirement(each) for each in PROJECT["project"]["dependencies"]]
EXTRAS = PROJECT["project"]["optional-dependencies"]
EMBEDDED = {Requirement(each).name for each in EXTRAS["embedded"]}

CLIENT = ROOT / "refine_client"
# Which package a module of the client imports besides requests.
SDKS = {
    "anthropic_memory": "anthropic",
    "langgraph_store": "langgraph",
    "mcp_server": "mcp",
    "openai_session": "agents",
}


@FILES
def test_every_package_is_pinned_to_one_version_with_hashes_and_no_other_option(file: Path) -> None:
    odd = [
        str(each.requirement)
        for each in locked_in(file)
        if not re.fullmatch(r"==[\w.!+]+", str(each.requirement.specifier))
        or each.requirement.url is not None
        or not each.options
        or not all(re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", option) for option in each.options)
    ]

    assert odd == []
    assert "://" not in file.read_text()


def test_no_package_index_is_named() -> None:
    naming = re.compile("index|links", re.IGNORECASE)  # no option or table can do without them
    files = [ROOT / "pyproject.toml", ROOT / "Makefile", *ROOT.glob(".ci/*"), *ROOT.glob("*.cfg")]

    assert [file.name for file in files if naming.search(file.read_text())] == []
    assert not (ROOT / "pip.conf").exists()
    assert not (ROOT / "uv.toml").exists()


def test_every_installation_asks_for_hashes_or_for_no_package() -> None:
    lines = [*(ROOT / "Makefile").read_text().splitlines(), *(ROOT / ".ci/run").read_text().split()]

    installing = [line for line in lines if "pip install" in line]
    unchecked = [
        line
        for line in installing
        if "--require-hashes" not in line
        and not ("--no-deps" in line and "--no-build-isolation" in line)
    ]
    assert installing
    assert unchecked == []


@pytest.mark.parametrize("direct", DIRECT, ids=lambda direct: direct.name)
def test_the_lock_contains_every_requirement_of_the_project(direct: Requirement) -> None:
    locked = [
        each.requirement
        for each in locked_in(RUNTIME)
        if canonicalize_name(each.name) == canonicalize_name(direct.name)
    ]

    versions = [str(each.specifier).removeprefix("==") for each in locked]
    assert versions
    assert all(direct.specifier.contains(version) for version in versions), versions


def test_no_major_version_is_taken_unseen() -> None:
    bounded = {each.name for each in DIRECT if "<" in str(each.specifier)}

    assert {each.name for each in DIRECT} - bounded == UNBOUNDED
    # the worker overrides methods of it that are not for that
    assert [str(each.specifier) for each in DIRECT if each.name == "rq"] == ["<2.13,>=2.12"]


@FILES
def test_this_environment_is_the_locked_one(file: Path) -> None:
    here = [each for each in locked_in(file) if each.is_for_this_machine]

    installed = {each.name: distribution(each.name).version for each in here}

    locked = {each.name: str(each.requirement.specifier).removeprefix("==") for each in here}
    assert installed == locked


def test_every_package_that_refine_imports_is_in_its_lock() -> None:
    """And not only in that of its tests, which no server has."""
    locked = {canonicalize_name(each.name) for each in locked_in(RUNTIME)}
    own = {"refine", "refine_client", "migrations", *sys.stdlib_module_names}
    own.add("opentelemetry")  # an extra, imported where a setting asks for it
    files: list[Path] = []
    for folder in ("refine", "migrations"):
        files += (ROOT / folder).rglob("*.py")
    providers = packages_distributions()

    missing = {
        name: providers.get(name)
        for name in sorted(imported(files) - own)
        if not {canonicalize_name(each) for each in providers.get(name, ())} & locked
    }

    assert missing == {}


@pytest.mark.parametrize("file", sorted(CLIENT.glob("*.py")), ids=lambda file: file.stem)
def test_a_module_of_the_client_needs_requests_and_its_own_sdk_alone(file: Path) -> None:
    others = imported([file]) - {"refine_client", *sys.stdlib_module_names}

    assert others <= {"requests", SDKS.get(file.stem)}


def test_what_is_tested_with_is_what_the_extras_ask_for() -> None:
    asked = {each for name, extra in EXTRAS.items() if name != "embedded" for each in extra}

    assert asked <= set(PROJECT["dependency-groups"]["test"])


def test_a_server_installs_neither_the_embedded_servers_nor_what_builds_the_package():
    local = {each.name for each in locked_in(LOCAL)}
    runtime = {each.name for each in locked_in(RUNTIME)}

    assert {"hatchling", *EMBEDDED} <= local - runtime
    assert runtime < local < {each.name for each in locked_in(DEVELOPMENT)}


def imported(files: Iterable[Path]) -> set[str]:
    """The packages that these files import, anywhere in them."""
    names = set[str]()
    for file in files:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                names |= {each.name.partition(".")[0] for each in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names.add(node.module.partition(".")[0])
    return names
