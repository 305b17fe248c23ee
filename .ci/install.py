"""Prepare .venv from requirements.lock: safe to repeat, and after a crash.

Runs on the system's python3 with the standard library alone; even an old one must be able to
parse this file, to say that it is too old.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
VENV = os.path.join(ROOT, ".venv")
PYTHON = os.path.join(VENV, "bin", "python")
STAMP = os.path.join(VENV, ".ready")
INPUTS = ("requirements.lock", "pyproject.toml")
OLDEST = (3, 11)


def main():
    """Install unless what is there is whole and current."""
    if sys.version_info < OLDEST:
        fail(
            "python3 is Python %d.%d; Strata needs 3.11 or newer." % sys.version_info[:2],
            "Install a newer Python, and name it: make install PYTHON=python3.12",
        )
    with open(os.path.abspath(__file__)) as lock:
        # Two `make` at once: the second waits, then finds the work done.
        fcntl.flock(lock, fcntl.LOCK_EX)
        wanted = fingerprint()
        if read(STAMP) == wanted and works():
            return
        install(wanted)


def install(wanted):
    """Make the environment; without the stamp of a finished one, from nothing."""
    if os.path.lexists(VENV) and (not os.path.exists(STAMP) or read(STAMP).split()[:2] != wanted.split()[:2]):
        print("removing an unfinished or moved .venv", flush=True)
        shutil.rmtree(VENV) if not os.path.islink(VENV) else os.unlink(VENV)
    pip = make_environment() if not os.path.exists(PYTHON) else pip_command()
    if os.path.exists(STAMP):
        os.unlink(STAMP)
    quiet = ["--quiet", "--no-input", "--disable-pip-version-check", "--no-warn-script-location"]
    print("installing the packages of requirements.lock into .venv", flush=True)
    run(pip + ["install"] + quiet + ["--require-hashes", "-r", os.path.join(ROOT, "requirements.lock")])
    run(pip + ["install"] + quiet + ["--no-deps", "--no-build-isolation", "-e", ROOT])
    with open(STAMP + ".new", "w") as stamp:
        stamp.write(wanted)
    os.replace(STAMP + ".new", STAMP)


def make_environment():
    """Make an empty environment and return the pip that fills it."""
    if subprocess.call([sys.executable, "-c", "import ensurepip, venv"], stderr=subprocess.DEVNULL) == 0:
        run([sys.executable, "-m", "venv", VENV])
        return pip_command()
    # Debian and its kin keep ensurepip in a package of its own.
    have_pip = subprocess.call([sys.executable, "-m", "pip", "--version"], stdout=subprocess.DEVNULL) == 0
    if not have_pip or subprocess.call([sys.executable, "-m", "venv", "--without-pip", VENV]) != 0:
        shutil.rmtree(VENV, ignore_errors=True)
        fail("this python3 cannot make virtual environments.", "Install python3-venv (Debian, Ubuntu), or full Python.")
    return pip_command()


def pip_command():
    """Return the environment's own pip, or the system's, working on it."""
    inside = [PYTHON, "-m", "pip"]
    if subprocess.call(inside + ["--version"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) == 0:
        return inside
    return [sys.executable, "-m", "pip", "--python", PYTHON]


def fingerprint():
    """Return what the environment depends on: where it is, which Python, and the two files."""
    digest = hashlib.sha256()
    for name in INPUTS:
        with open(os.path.join(ROOT, name), "rb") as file:
            digest.update(file.read())
    place = hashlib.sha256(os.fsencode(ROOT)).hexdigest()
    return "%s %s %s\n" % (place, "%d.%d" % sys.version_info[:2], digest.hexdigest())


def works():
    """Tell whether the environment can still run the program."""
    command = [PYTHON, "-c", "import strata.cli.main"]
    return os.path.exists(PYTHON) and subprocess.call(command, stderr=subprocess.DEVNULL, cwd="/") == 0


def read(path):
    """Return the text of a file, empty when there is none."""
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return ""


def run(command):
    """Run a command to its end; what it says is all there is to say."""
    environment = dict(os.environ, PIP_USER="0", PIP_REQUIRE_VIRTUALENV="0")
    environment.pop("PYTHONPATH", None)
    code = subprocess.call(command, env=environment, cwd=ROOT)
    if code != 0:
        fail("a step of the installation failed (see above).", "Mend its cause, and run the same command again.")


def fail(detail, remedy):
    """Say what is wrong and how to mend it, and end."""
    sys.stderr.write("error: %s\n  remedy: %s\n" % (detail, remedy))
    sys.exit(1)


if __name__ == "__main__":
    main()
