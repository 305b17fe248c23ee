"""What the doctor makes of the facts it finds."""

import resource
import shutil
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import pytest

from strata.platform import doctor
from strata.platform.doctor import Status
from strata.platform.doctor_repository import RoleFacts, ServerFacts
from strata.platform.embedded import EmbeddedStatus
from strata.settings import load_settings


def facts(**changes):
    values = {
        "version": "18.1 (Debian)",
        "version_number": 180001,
        "now": datetime.now(UTC),
        "is_replica": False,
        "vector_installed": "0.8.1",
        "vector_available": "0.8.1",
    }
    return ServerFacts(**values | changes)


def embedded(**changes):
    values = {
        "data_dir": Path("/srv/strata/postgres"),
        "data_state": "ready",
        "data_version": "18",
        "binary_version": "18.6",
        "running": False,
        "pid": None,
        "socket_dir": None,
        "users": (),
        "busy": False,
        "log_file": None,
    }
    return EmbeddedStatus(**values | changes)


def role(**changes):
    return RoleFacts(**{"exists": True, "is_privileged": False, "can_assume": True, "owned": ()} | changes)


@pytest.mark.parametrize(
    ("check", "status"),
    [
        (lambda: doctor._server(facts(), "postgresql://a:secret@h/d"), Status.OK),
        (lambda: doctor._server(facts(version_number=140012), "postgresql://h/d"), Status.FAIL),
        (lambda: doctor._server(facts(is_replica=True), "postgresql://h/d"), Status.FAIL),
        (lambda: doctor._vector(facts()), Status.OK),
        (lambda: doctor._vector(facts(vector_installed=None)), Status.FAIL),
        (lambda: doctor._vector(facts(vector_installed=None, vector_available=None)), Status.FAIL),
        (lambda: doctor._clock(0.1), Status.OK),
        (lambda: doctor._clock(-5), Status.WARN),
        (lambda: doctor._clock(4000), Status.FAIL),
        (lambda: doctor._role(role()), Status.OK),
        (lambda: doctor._role(role(exists=False)), Status.FAIL),
        (lambda: doctor._role(role(is_privileged=True)), Status.FAIL),
        (lambda: doctor._role(role(can_assume=False)), Status.FAIL),
        (lambda: doctor._role(role(owned=("source",))), Status.FAIL),
        (lambda: doctor._embedded_check(embedded()), Status.OK),
        (lambda: doctor._embedded_check(embedded(running=True, pid=7, users=(8, 9))), Status.OK),
        (lambda: doctor._embedded_check(embedded(busy=True)), Status.OK),
        (lambda: doctor._embedded_check(embedded(data_state="absent", data_version=None)), Status.OK),
        (lambda: doctor._embedded_check(embedded(data_state="incomplete")), Status.WARN),
        (lambda: doctor._embedded_check(embedded(binary_version=None)), Status.FAIL),
        (lambda: doctor._embedded_check(embedded(data_version="17")), Status.FAIL),
    ],
)
def test_facts_get_their_verdict_and_what_fails_gets_a_remedy(check, status):
    found = check()
    assert found.status is status
    assert (found.remedy is None) == (status is Status.OK)
    assert "secret" not in found.detail


@pytest.mark.parametrize(
    ("soft", "status"), [(64, Status.FAIL), (512, Status.WARN), (4096, Status.OK), (resource.RLIM_INFINITY, Status.OK)]
)
def test_a_low_limit_of_open_files_is_told(monkeypatch, soft, status):
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, resource.RLIM_INFINITY))
    assert doctor._open_files().status is status


@pytest.mark.parametrize(("free", "status"), [(10, Status.FAIL), (500 * 1024**2, Status.WARN), (2**40, Status.OK)])
def test_a_full_disk_is_told(monkeypatch, tmp_path, free, status):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=free))
    assert doctor._disk(load_settings({}, home=str(tmp_path / "later"))).status is status


def test_a_home_that_does_not_exist_can_be_made(tmp_path):
    check = doctor._home(load_settings({}, home=str(tmp_path / "a" / "b")))
    assert check.status is Status.OK
    assert not (tmp_path / "a").exists()


def test_a_home_that_is_a_file_fails(tmp_path):
    (tmp_path / "file").write_text("x")
    assert doctor._home(load_settings({}, home=str(tmp_path / "file" / "home"))).status is Status.FAIL
