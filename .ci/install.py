# ruff: noqa: INP001, T201, S603 - a script: it prints, and runs commands of its own making
"""Prepare .venv from requirements.lock: safe to repeat, and after a crash.

Runs on the system's python3 with the standard library alone.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parents[1]
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
STAMP = VENV / ".ready"
INPUTS = (ROOT / "requirements.lock", ROOT / "pyproject.toml")


def main() -> None:
    """Install unless what is there is whole and current."""
    with Path(__file__).open() as lock:
        # Two `make` at once: the second waits, then finds the work done.
        fcntl.flock(lock, fcntl.LOCK_EX)
        wanted = fingerprint()
        if read(STAMP) != wanted or not works():
            install(wanted)


def install(wanted: str) -> None:
    """Make the environment; from nothing, unless one that was finished here is only out of date."""
    if os.path.lexists(VENV) and read(STAMP).split()[:2] != wanted.split()[:2]:
        print("removing an unfinished or moved .venv", flush=True)
        if VENV.is_symlink():
            VENV.unlink()
        else:
            shutil.rmtree(VENV)
    if not PYTHON.exists():
        make_environment()
    STAMP.unlink(missing_ok=True)
    pip = [*pip_command(), "install", "--quiet", "--no-input", "--disable-pip-version-check"]
    print("installing the packages of requirements.lock into .venv", flush=True)
    run([*pip, "--require-hashes", "-r", str(ROOT / "requirements.lock")])
    run([*pip, "--no-deps", "--no-build-isolation", "-e", str(ROOT)])
    unfinished = STAMP.with_suffix(".new")
    unfinished.write_text(wanted)
    unfinished.replace(STAMP)


def make_environment() -> None:
    """Make an empty environment, without a pip of its own where Python lacks ensurepip."""
    if succeeds([sys.executable, "-c", "import ensurepip, venv"]):
        run([sys.executable, "-m", "venv", str(VENV)])
        return
    # Debian and its kin keep ensurepip in a package of its own.
    have_pip = succeeds([sys.executable, "-m", "pip", "--version"])
    if not have_pip or not succeeds([sys.executable, "-m", "venv", "--without-pip", str(VENV)]):
        shutil.rmtree(VENV, ignore_errors=True)
        fail("this python3 cannot make virtual environments.", "Install python3-venv (Debian, Ubuntu), or full Python.")


def pip_command() -> list[str]:
    """Return the environment's own pip, or the system's working on it."""
    inside = [str(PYTHON), "-m", "pip"]
    return inside if succeeds([*inside, "--version"]) else [sys.executable, "-m", "pip", "--python", str(PYTHON)]


def fingerprint() -> str:
    """Return what the environment depends on: where it is, which Python, and the two files."""
    place = hashlib.sha256(os.fsencode(ROOT)).hexdigest()
    files = hashlib.sha256(b"".join(path.read_bytes() for path in INPUTS)).hexdigest()
    return f"{place} {sys.version_info.major}.{sys.version_info.minor} {files}\n"


def works() -> bool:
    """Tell whether the environment can still run the program."""
    return PYTHON.exists() and succeeds([str(PYTHON), "-c", "import strata.cli.main"])


def succeeds(command: list[str]) -> bool:
    """Run a command for its exit code alone."""
    silent = subprocess.DEVNULL
    return subprocess.call(command, stdin=silent, stdout=silent, stderr=silent, cwd="/") == 0


def read(path: Path) -> str:
    """Return the text of a file, empty when there is none."""
    try:
        return path.read_text()
    except OSError:
        return ""


def run(command: list[str]) -> None:
    """Run a command to its end; what it says is all there is to say."""
    environment = {**os.environ, "PIP_USER": "0", "PIP_REQUIRE_VIRTUALENV": "0"}
    environment.pop("PYTHONPATH", None)
    if subprocess.call(command, env=environment, cwd=ROOT) != 0:
        fail("a step of the installation failed (see above).", "Mend its cause, and run the same command again.")


def fail(detail: str, remedy: str) -> NoReturn:
    """Say what is wrong and how to mend it, and end."""
    sys.exit(f"error: {detail}\n  remedy: {remedy}")


if __name__ == "__main__":
    main()
