"""The built wheel, installed where the source tree is not."""

import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    target = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", target]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return next(target.glob("*.whl"))


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """An environment with the wheel; its dependencies are those of the environment that runs the tests."""
    place = tmp_path_factory.mktemp("fresh")
    venv.create(place, symlinks=True)
    library = Path(sysconfig.get_path("purelib", vars={"base": str(place), "platbase": str(place)}))
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(library)
    (library / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return place / "bin" / "python"


def run(python, *words):
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("STRATA_", "PYTHON"))}
    code = "import sys; from strata.cli.main import main; sys.exit(main())"
    command = [python, "-c", code, *words]
    return subprocess.run(command, cwd="/", env=environment, check=True, capture_output=True, text=True).stdout


def test_the_wheel_runs_from_its_own_files(installed):
    where = subprocess.run(
        [installed, "-c", "import strata; print(strata.__file__)"], cwd="/", check=True, capture_output=True, text=True
    ).stdout
    assert not Path(where.strip()).is_relative_to(ROOT)
    assert run(installed, "--version").startswith("strata ")


def test_the_wheel_carries_its_migrations(installed):
    assert "CREATE TABLE passage" in run(installed, "migrate", "--sql")


def test_the_wheel_names_its_command_and_says_that_it_is_typed(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        entry = next(name for name in names if name.endswith("entry_points.txt"))
        assert "strata = strata.cli.main:main" in archive.read(entry).decode()
    assert "strata/py.typed" in names
