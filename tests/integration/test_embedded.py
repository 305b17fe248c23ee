"""The embedded server: shared, stopped by its last user, and recovered from every kind of death."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from pathlib import Path

import asyncpg
import psutil
import pytest

from strata.errors import EMBEDDED_POSTGRES, StrataError
from strata.platform import embedded as manager
from strata.platform import embedded_process, embedded_runtime
from strata.platform.embedded import EmbeddedPostgres
from strata.platform.embedded_cluster import MARKER

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root changes users")

USER = """
import os, sys
from pathlib import Path
import asyncpg
from strata.platform.embedded import EmbeddedPostgres
server = EmbeddedPostgres(Path(sys.argv[1]), fsync=False)
try:
    info = server.acquire()
except Exception as error:
    print("error", getattr(error, "code", repr(error)), error, flush=True)
    sys.exit(3)
print("ready", info.pid, info.dsn, flush=True)
sys.stdin.readline()
server.release()
"""


class User:
    """Another process that uses the server; ``first`` runs before it starts to."""

    def __init__(self, home, first="") -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", first + USER, str(home)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ready(self):
        word, *rest = self.process.stdout.readline().split(maxsplit=2)
        assert word == "ready", rest
        return int(rest[0]), rest[1].strip()

    def leave(self):
        self.process.communicate("\n", timeout=60)
        return self.process.returncode

    def kill(self):
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def base():
    path = Path(tempfile.mkdtemp(prefix="strata-"))
    path.chmod(0o755)
    yield path
    for data in path.rglob("postgres"):
        if data.is_dir():
            embedded_process.end_processes(data)
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def fresh(base):
    """A home that does not exist yet."""
    return base / "home"


@pytest.fixture(scope="module")
def template():
    """A home made once: making one takes longer than most of these tests."""
    path = Path(tempfile.mkdtemp(prefix="strata-"))
    path.chmod(0o755)
    with server(path):
        pass
    yield path
    shutil.rmtree(path)


@pytest.fixture
def home(template):
    """A home with data and no server running; a test leaves the data usable."""
    yield template
    embedded_process.end_processes(template / "postgres")


def make_open(folder):
    """Make a folder that root's server account can enter."""
    folder.mkdir()
    folder.chmod(0o755 if os.geteuid() == 0 else 0o700)


def furnish(home, template):
    make_open(home)
    subprocess.run(["cp", "-a", "--", template / "postgres", home / "postgres"], check=True)
    return home


@pytest.fixture
def own_home(fresh, template):
    """A home with data that a test may spoil."""
    return furnish(fresh, template)


@pytest.fixture
def users():
    started = []

    def start(home, first=""):
        started.append(User(home, first))
        return started[-1]

    yield start
    for user in started:
        user.kill()


def server(home, **options):
    return EmbeddedPostgres(home, fsync=False, **options)


def sql(dsn, statement):
    async def run():
        connection = await asyncpg.connect(dsn)
        try:
            return await connection.fetchval(statement)
        finally:
            await connection.close()

    return asyncio.run(run())


def keep(dsn):
    sql(dsn, "DROP TABLE IF EXISTS kept")
    sql(dsn, "CREATE TABLE kept (word text)")
    sql(dsn, "INSERT INTO kept VALUES ('証拠')")


def kept(dsn):
    return sql(dsn, "SELECT word FROM kept") == "証拠"


def gone(pid):
    return embedded_process.wait_until(lambda: not embedded_process.pid_alive(pid), 10)


def kill_all(data):
    for process in embedded_process.processes_of(data):
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    assert embedded_process.wait_until(lambda: not embedded_process.processes_of(data), 10)


def refused(call):
    with pytest.raises(StrataError) as caught:
        call()
    assert caught.value.kind is EMBEDDED_POSTGRES
    return caught.value


def test_a_first_acquire_makes_a_working_database(fresh, monkeypatch):
    monkeypatch.setenv("PGPORT", "1")
    monkeypatch.setenv("PGHOST", "nowhere.invalid")
    with server(fresh) as embedded:
        info = embedded.acquire()
        assert info.version.startswith("18.")
        assert info.data_dir == (fresh / "postgres").resolve()
        assert sql(info.dsn, "SHOW server_encoding") == "UTF8"
        assert sql(info.dsn, "SELECT datlocale FROM pg_database WHERE datname = 'strata'") == "C.UTF-8"
        assert sql(info.dsn, "SELECT rolsuper FROM pg_roles WHERE rolname = current_user") is True
        assert sql(info.dsn, "SELECT count(*) FROM pg_available_extensions WHERE name = 'vector'") == 1
        assert sql(info.dsn, "SHOW jit") == "off"
        assert sql(info.dsn, "SHOW timezone") == "UTC"
        assert sql(info.dsn, "SHOW fsync") == "off"
        assert not psutil.Process(info.pid).net_connections(kind="inet")
    assert gone(info.pid)
    with EmbeddedPostgres(fresh) as embedded:
        assert sql(embedded.acquire().dsn, "SHOW fsync") == "on"


def test_committed_data_survives_an_ordinary_stop(home):
    with server(home) as embedded:
        keep(embedded.acquire().dsn)
    with server(home) as embedded:
        assert kept(embedded.acquire().dsn)


def test_two_processes_share_one_server_and_the_last_stops_it(home, users):
    first, second = users(home), users(home)
    pid, _ = first.ready()
    assert second.ready()[0] == pid
    assert first.leave() == 0
    assert embedded_process.pid_alive(pid)
    assert second.leave() == 0
    assert gone(pid)
    assert not list((home / "run" / "users").iterdir())


def test_instances_in_one_process_share_one_server(home):
    with server(home) as first:
        with server(home) as second:
            info = second.acquire()
        assert first.acquire().pid == info.pid
        assert sql(info.dsn, "SELECT 1") == 1
    assert gone(info.pid)


def test_threads_may_acquire_one_instance_at_once(home):
    embedded = server(home)
    pids = []
    threads = [threading.Thread(target=lambda: pids.append(embedded.acquire().pid)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(pids) == 4
    assert len(set(pids)) == 1
    assert embedded.status().users == (os.getpid(),)
    embedded.release()
    assert gone(pids[0])


def test_a_second_acquire_or_release_changes_nothing(home):
    embedded = server(home)
    embedded.release()
    info = embedded.acquire()
    assert embedded.acquire() == info
    embedded.release()
    assert gone(info.pid)
    embedded.release()


def test_a_process_that_exits_without_release_leaves_by_itself(home, users):
    user = users(home, first="import atexit; ")
    pid, _ = user.ready()
    user.leave()
    assert gone(pid)
    code = USER.replace("server.release()", "").replace("sys.stdin.readline()", "")
    done = subprocess.run([sys.executable, "-c", code, str(home)], capture_output=True, text=True, check=True)
    assert gone(int(done.stdout.split()[1]))


@pytest.mark.slow
def test_many_first_users_at_once_get_one_server(fresh, users):
    crowd = [users(fresh) for _ in range(4)]
    assert len({user.ready()[0] for user in crowd}) == 1
    assert {user.leave() for user in crowd} == {0}
    assert not server(fresh).status().running


def test_a_killed_user_does_not_keep_the_server_alive(home, users):
    embedded = server(home)
    pid = embedded.acquire().pid
    user = users(home)
    user.ready()
    user.kill()
    assert embedded.status().users == (os.getpid(),)
    embedded.release()
    assert gone(pid)


def test_a_server_whose_last_user_was_killed_is_used_again(home, users):
    user = users(home)
    pid, dsn = user.ready()
    keep(dsn)
    user.kill()
    assert server(home).status().users == ()
    with server(home) as embedded:
        info = embedded.acquire()
        assert info.pid == pid
        assert kept(info.dsn)
    assert gone(pid)


def test_a_stale_user_file_blocks_nobody(home):
    with server(home):
        (home / "run" / "users" / f"{os.getpid()}-dead.lock").touch()
    (home / "run" / "users" / f"{os.getpid()}-late.lock").touch()
    with server(home) as embedded:
        pid = embedded.acquire().pid
    assert gone(pid)
    assert not list((home / "run" / "users").iterdir())


def test_a_killed_server_is_started_again(home):
    with server(home) as embedded:
        before = embedded.acquire()
        keep(before.dsn)
        os.kill(before.pid, signal.SIGKILL)
        after = embedded.acquire()
        assert after.pid != before.pid
        assert after.dsn == before.dsn
        assert kept(after.dsn)


def test_a_server_killed_while_it_is_acquired_is_started_again(home, monkeypatch):
    describe, killed = EmbeddedPostgres._describe, []

    def kill_once(self):
        if not killed:
            killed.append(embedded_process.read_pid_file(home / "postgres").pid)
            os.kill(killed[0], signal.SIGKILL)
            assert gone(killed[0])
        return describe(self)

    monkeypatch.setattr(EmbeddedPostgres, "_describe", kill_once)
    with server(home) as embedded:
        assert embedded.acquire().pid != killed[0]


def test_an_interrupted_acquire_leaves_no_server_and_no_user(home, monkeypatch):
    def interrupt(self):
        raise KeyboardInterrupt

    monkeypatch.setattr(EmbeddedPostgres, "_describe", interrupt)
    with pytest.raises(KeyboardInterrupt):
        server(home).acquire()
    assert not embedded_process.processes_of(home / "postgres")
    assert server(home).status().users == ()


def test_a_busy_orphan_of_a_killed_server_is_ended(home, monkeypatch):
    monkeypatch.setattr(embedded_process, "_QUIT_SECONDS", 0.5)
    with server(home) as embedded:
        before = embedded.acquire()
        keep(before.dsn)
        busy = threading.Thread(target=_count_for_ever, args=[before.dsn])
        busy.start()
        query = "SELECT pid FROM pg_stat_activity WHERE query LIKE '%generate_series%' AND pid <> pg_backend_pid()"
        assert embedded_process.wait_until(lambda: sql(before.dsn, query) is not None, 10)
        orphan = sql(before.dsn, query)
        os.kill(before.pid, signal.SIGKILL)
        # Stopped, it can only be ended by force.
        os.kill(orphan, signal.SIGSTOP)
        after = embedded.acquire()
        busy.join()
        assert not embedded_process.pid_alive(orphan)
        assert kept(after.dsn)


def _count_for_ever(dsn):
    with contextlib.suppress(asyncpg.PostgresError, OSError):
        sql(dsn, "SELECT count(*) FROM generate_series(1, 1000000000000)")


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lets a process adopt orphans")
def test_a_dead_server_that_nobody_reaped_is_not_taken_for_a_live_one(home, users):
    adopt = "import ctypes; assert ctypes.CDLL(None).prctl(36, 1, 0, 0, 0) == 0\n"
    user = users(home, first=adopt)
    pid, dsn = user.ready()
    keep(dsn)
    os.kill(pid, signal.SIGKILL)
    assert gone(pid)
    assert psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    assert not server(home).status().running
    with server(home) as embedded:
        assert kept(embedded.acquire().dsn)
        assert user.leave() == 0


def test_server_and_user_killed_together_are_recovered_from(home, users):
    user = users(home)
    pid, dsn = user.ready()
    keep(dsn)
    os.kill(pid, signal.SIGKILL)
    user.kill()
    with server(home) as embedded:
        info = embedded.acquire()
        assert info.pid != pid
        assert kept(info.dsn)


def test_a_machine_reset_that_gave_the_pid_to_another_program_is_recovered_from(home, users):
    user = users(home)
    pid, dsn = user.ready()
    keep(dsn)
    user.kill()
    kill_all(home / "postgres")
    ours = str(os.getpid())
    for path in (home / "postgres" / "postmaster.pid", home / "run" / "socket" / ".s.PGSQL.5432.lock"):
        path.write_text(path.read_text().replace(str(pid), ours))
    assert not server(home).status().running
    with server(home) as embedded:
        assert kept(embedded.acquire().dsn)


@pytest.mark.parametrize("text", ["", "no number\n", "-5\n", "99999999999999999999999\n", "0\n"])
def test_a_garbled_pid_file_is_no_obstacle(home, text):
    with server(home) as embedded:
        keep(embedded.acquire().dsn)
    (home / "postgres" / "postmaster.pid").write_text(text)
    with server(home) as embedded:
        assert kept(embedded.acquire().dsn)


def test_a_user_killed_while_making_the_data_leaves_nothing_behind(fresh, users):
    user = users(fresh)
    assert embedded_process.wait_until(lambda: bool(list(fresh.glob("postgres.init-*/data/global"))), 20)
    user.kill()
    assert not (fresh / "postgres").exists()
    with server(fresh) as embedded:
        assert sql(embedded.acquire().dsn, "SELECT 1") == 1
        assert not list(fresh.glob("postgres.init-*"))


@pytest.mark.parametrize("made", [[], ["base"], ["base", "PG_VERSION"]])
def test_a_half_made_data_directory_is_never_taken(fresh, made):
    make_open(fresh)
    (fresh / "postgres").mkdir()
    for name in made:
        (fresh / "postgres" / name).write_text("18\n")
    assert server(fresh).status().data_state == "incomplete"
    with server(fresh) as embedded:
        assert sql(embedded.acquire().dsn, "SELECT 1") == 1
        assert embedded.status().data_state == "ready"
    aside = list(fresh.glob("postgres.incomplete-*"))
    assert [sorted(path.name for path in folder.iterdir()) for folder in aside] == ([sorted(made)] if made else [])


def test_a_socket_without_a_server_is_replaced(home):
    with server(home) as embedded:
        info = embedded.acquire()
    (info.socket_dir / ".s.PGSQL.5432").touch()
    (info.socket_dir / ".s.PGSQL.5432.lock").write_text(f"{os.getpid()}\n")
    with server(home) as embedded:
        assert sql(embedded.acquire().dsn, "SELECT 1") == 1


def test_a_server_without_a_socket_is_started_again(home):
    with server(home) as embedded:
        before = embedded.acquire()
        keep(before.dsn)
        (before.socket_dir / ".s.PGSQL.5432").unlink()
        after = embedded.acquire()
        assert after.pid != before.pid
        assert kept(after.dsn)


def test_a_server_without_a_pid_file_is_started_again(home):
    with server(home) as embedded:
        before = embedded.acquire()
        keep(before.dsn)
        (home / "postgres" / "postmaster.pid").unlink()
        after = embedded.acquire()
        assert after.pid != before.pid
        assert kept(after.dsn)


def test_data_of_another_major_version_is_refused_and_left_alone(own_home):
    with server(own_home) as embedded:
        embedded.acquire()
    (own_home / "postgres" / "PG_VERSION").write_text("15\n")
    before = sorted((path, path.lstat().st_mtime_ns) for path in (own_home / "postgres").rglob("*"))
    error = refused(server(own_home).acquire)
    assert "Postgres 15" in error.detail
    assert "Postgres 18" in error.detail
    assert "embedded-postgres 15" in error.remedy
    assert sorted((path, path.lstat().st_mtime_ns) for path in (own_home / "postgres").rglob("*")) == before
    assert server(own_home).status().data_version == "15"
    assert server(own_home).status().users == ()


def test_a_failed_start_tells_what_the_log_says(own_home):
    with server(own_home) as embedded:
        embedded.acquire()
    with (own_home / "postgres" / "postgresql.auto.conf").open("a") as file:
        file.write("shared_buffers = 'a great deal'\n")
    error = refused(server(own_home).acquire)
    assert str(own_home / "log") in error.detail
    assert "a great deal" in error.detail
    assert not list((own_home / "run" / "users").iterdir())


@pytest.mark.slow
def test_a_server_that_does_not_answer_is_reported_in_time(home):
    with server(home) as embedded:
        info = embedded.acquire()
        os.kill(info.pid, signal.SIGSTOP)
        started = time.monotonic()
        error = refused(server(home, start_timeout_seconds=1.0).acquire)
        assert time.monotonic() - started < 15
        assert str(info.pid) in error.detail
        assert str(home / "log") in error.detail
        os.kill(info.pid, signal.SIGCONT)
        assert embedded.acquire().pid == info.pid


@pytest.mark.parametrize("name", ["l" * 90, "with blank, comma", 'it\'s "quoted" $HOME `x` \\', "証拠🦉", "-dash"])
def test_any_home_path_works(base, template, name):
    home = furnish(base / name, template)
    with server(home) as embedded:
        info = embedded.acquire()
        assert len(os.fsencode(info.socket_dir)) < 90
        keep(info.dsn)
        os.kill(info.pid, signal.SIGKILL)
        assert kept(embedded.acquire().dsn)
    if info.socket_dir.parent != home / "run":
        assert not info.socket_dir.exists()


def test_a_socket_folder_of_someone_else_is_refused(base, template, monkeypatch):
    home = furnish(base / "a home with blanks", template)
    temp = base / "temp"
    make_open(temp)
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(temp))
    with server(home) as embedded:
        name = embedded.acquire().socket_dir.name
    (temp / name).symlink_to(base)
    assert "socket folder" in refused(server(home).acquire).detail
    (temp / name).unlink()
    (temp / name).mkdir(mode=0o777)
    (temp / name).chmod(0o777)
    assert "socket folder" in refused(server(home).acquire).detail


def test_data_may_lie_behind_a_link(base, fresh):
    home = fresh
    make_open(home)
    make_open(base / "disk")
    (home / "postgres").symlink_to(base / "disk" / "postgres")
    with server(home) as embedded:
        keep(embedded.acquire().dsn)
    assert (base / "disk" / "postgres" / MARKER).exists()
    with server(home) as embedded:
        assert kept(embedded.acquire().dsn)


def test_a_home_that_is_a_file_is_refused(fresh):
    fresh.write_text("")
    assert str(fresh) in refused(server(fresh).acquire).detail
    assert str(fresh) in refused(server(fresh / "below").acquire).detail
    assert "control character" in refused(server(fresh.with_name("a\nb")).acquire).detail


def test_a_full_disk_is_reported_and_leaves_no_data(fresh, users):
    # A cap on the size of a file stands in for a full disk.
    user = users(fresh, first="import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536)); ")
    line = user.process.stdout.readline()
    assert line.startswith("error embedded_postgres")
    assert "initdb failed" in line
    assert not list(fresh.glob("postgres*"))


def test_a_platform_without_binaries_is_told_what_to_do(fresh, monkeypatch):
    monkeypatch.setattr(embedded_runtime.importlib.util, "find_spec", lambda name: None)
    error = refused(server(fresh).acquire)
    assert "no Postgres binaries" in error.detail
    assert "STRATA_DATABASE_URL" in error.remedy
    assert server(fresh).status().binary_version is None


def test_a_binary_that_does_not_run_is_named(base, fresh, monkeypatch):
    folder = base / "bin"
    folder.mkdir()
    folder.chmod(0o755)
    (folder / "initdb").write_text("#!/bin/sh\necho 'GLIBC_9.9 not found' >&2; exit 1\n")
    (folder / "initdb").chmod(0o755)
    monkeypatch.setattr(embedded_runtime, "packaged_bin", lambda: folder)
    assert "GLIBC_9.9 not found" in refused(server(fresh).acquire).detail


def test_status_makes_and_starts_nothing(fresh):
    status = server(fresh).status()
    assert not fresh.exists()
    assert (status.data_state, status.running, status.pid, status.users) == ("absent", False, None, ())
    with server(fresh) as embedded:
        info = embedded.acquire()
        status = embedded.status()
        assert (status.data_state, status.data_version) == ("ready", "18")
        assert status.binary_version == info.version
        assert (status.running, status.pid, status.socket_dir) == (True, info.pid, info.socket_dir)
        assert status.users == (os.getpid(),)
        assert status.log_file is not None
        assert status.log_file.parent == fresh / "log"
    status = embedded.status()
    assert (status.data_state, status.running, status.users) == ("ready", False, ())


@pytest.mark.slow
def test_status_says_when_another_process_is_at_work(home, monkeypatch):
    monkeypatch.setattr(manager, "_STATUS_GUARD_SECONDS", 0.2)
    with server(home) as embedded, (home / "run" / "lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        status = embedded.status()
        assert (status.busy, status.running) == (True, True)
        fcntl.flock(lock, fcntl.LOCK_UN)
        assert not embedded.status().busy


def test_the_server_shares_no_terminal_and_no_lock_with_its_starter(home):
    with server(home) as embedded:
        info = embedded.acquire()
        assert os.getsid(info.pid) != os.getsid(0)
        assert os.getpgid(info.pid) != os.getpgid(0)
        held = {Path(file.path).name for file in psutil.Process(info.pid).open_files()}
        assert "lock" not in held
        assert not any(name.startswith(f"{os.getpid()}-") for name in held)
        assert "server.lock" in held


def test_a_forked_child_is_no_user(home):
    embedded = server(home)
    info = embedded.acquire()
    with warnings.catch_warnings():
        # Newer Pythons warn of the threads that the test run itself has.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        embedded.release()
        signal.pause()
        os._exit(0)
    try:
        time.sleep(0.2)
        assert embedded.status().users == (os.getpid(),)
        assert sql(info.dsn, "SELECT 1") == 1
        embedded.release()
        assert gone(info.pid)
        assert embedded.status().users == ()
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_a_fork_of_a_killed_user_does_not_stand_for_it(home, users):
    user = users(home)
    pid, _ = user.ready()
    user.leave()
    # The child names itself: by then it has forgotten its parent's locks.
    code = USER.replace("sys.stdin.readline()", "if not os.fork(): print(os.getpid(), flush=True)\nos.read(0, 1)")
    parent = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", code, str(home)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    pid = int(parent.stdout.readline().split()[1])
    child = int(parent.stdout.readline())
    try:
        parent.kill()
        parent.wait()
        assert embedded_process.pid_alive(child)
        assert server(home).status().users == ()
        with server(home) as embedded:
            assert embedded.acquire().pid == pid
        assert gone(pid)
    finally:
        os.kill(child, signal.SIGKILL)
        parent.stdin.close()
        parent.stdout.close()


@as_root
def test_root_runs_the_server_as_another_user(home):
    with server(home) as embedded:
        info = embedded.acquire()
        assert psutil.Process(info.pid).uids().effective != 0
        assert psutil.Process(info.pid).gids().effective != 0
        assert info.data_dir.stat().st_uid == psutil.Process(info.pid).uids().effective
        assert info.socket_dir.stat().st_mode & 0o077 == 0


@as_root
def test_data_that_was_given_to_root_is_given_back(own_home):
    with server(own_home) as embedded:
        keep(embedded.acquire().dsn)
    for path in (own_home, *own_home.rglob("*")):
        os.chown(path, 0, 0, follow_symlinks=False)
    with server(own_home) as embedded:
        assert kept(embedded.acquire().dsn)


@as_root
def test_root_is_told_when_the_server_cannot_reach_the_home(base):
    base.chmod(0o700)
    error = refused(server(base / "home").acquire)
    assert "cannot reach" in error.detail
    assert "STRATA_HOME" in error.remedy
    assert "STRATA_DATABASE_URL" in error.remedy


@as_root
def test_binaries_that_the_server_cannot_reach_are_copied_once(base, own_home, monkeypatch):
    hidden = base / "hidden"
    hidden.mkdir(mode=0o700)
    source = embedded_runtime.packaged_bin().parents[1]
    for part in source.parent.glob(f"{source.name}*"):
        if part.suffix != ".dist-info":
            shutil.copytree(part, hidden / part.name, symlinks=True)
    monkeypatch.setattr(embedded_runtime, "packaged_bin", lambda: hidden / source.name / "pginstall" / "bin")
    (own_home / "runtime" / "0.1").mkdir(parents=True)
    (own_home / "runtime" / "unfinished-x").mkdir()
    with server(own_home) as embedded:
        info = embedded.acquire()
        assert sql(info.dsn, "SELECT count(*) FROM pg_available_extensions WHERE name = 'vector'") == 1
        sql(info.dsn, "CREATE EXTENSION vector")
        copies = list((own_home / "runtime").iterdir())
        assert len(copies) == 1
        assert psutil.Process(info.pid).exe().startswith(str(copies[0].resolve()))
    before = copies[0].stat().st_mtime_ns
    with server(own_home):
        assert list((own_home / "runtime").iterdir()) == copies
        assert copies[0].stat().st_mtime_ns == before


@as_root
def test_an_ordinary_user_runs_the_server_itself(base, users):
    nobody = pwd.getpwnam("nobody")
    home = base / "own"
    home.mkdir()
    os.chown(home, nobody.pw_uid, nobody.pw_gid)
    become = USER.split("server =", maxsplit=1)[0]
    become += f"import encodings.idna; os.setgroups([]); os.setgid({nobody.pw_gid}); os.setuid({nobody.pw_uid})\n"
    user = users(home, first=become)
    pid, dsn = user.ready()
    assert psutil.Process(pid).uids().effective == nobody.pw_uid
    assert (home / "run").stat().st_uid == nobody.pw_uid
    keep(dsn)
    # Root may join, and neither shuts the other out.
    with server(home) as embedded:
        assert embedded.acquire().pid == pid
        assert kept(dsn)
        assert user.leave() == 0
        assert embedded_process.pid_alive(pid)
    assert gone(pid)
    with server(home) as embedded:
        pid = embedded.acquire().pid
        again = users(home, first=become)
        assert again.ready()[0] == pid
    assert again.leave() == 0
    assert gone(pid)


@as_root
def test_a_user_id_without_a_name_is_refused(base, users):
    home = base / "own"
    home.mkdir()
    os.chown(home, 54321, 54321)
    become = USER.split("server =", maxsplit=1)[0] + "os.setgroups([]); os.setgid(54321); os.setuid(54321)\n"
    line = users(home, first=become).process.stdout.readline()
    assert line.startswith("error embedded_postgres User id 54321 has no entry")
