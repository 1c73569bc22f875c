"""The package, as `pip install '.[mcp]'` builds it where there is no copy of the sources."""

import subprocess
import sys
import zipfile
from pathlib import Path
from shutil import copy, copytree, ignore_patterns

import pytest

from tests.supply.locked import ROOT


@pytest.mark.slow
def test_it_has_every_file_that_it_reads(tmp_path: Path) -> None:
    for name in ("pyproject.toml", "README.md"):
        copy(ROOT / name, tmp_path)
    for name in ("refine", "refine_client"):
        copytree(ROOT / name, tmp_path / name, ignore=ignore_patterns("__pycache__"))
    wanted = {
        file.relative_to(tmp_path).as_posix()
        for name in ("refine", "refine_client")
        for file in (tmp_path / name).rglob("*")
        if file.is_file()
    }

    building = [*("-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation"), "."]
    subprocess.run([sys.executable, *building], cwd=tmp_path, check=True, timeout=120)

    (wheel,) = tmp_path.glob("*.whl")
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert packed == wanted
