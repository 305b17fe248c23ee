"""The installed ``strata import``, ``export`` and ``communities`` as people and scripts use them."""

import asyncio
import contextlib
import json
import os
import pty
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import asyncpg
import pytest

from exchange_support import stream
from strata.cli.base import ExitCode
from strata.platform.dsn import with_database

STRATA = str(Path(sys.executable).with_name("strata"))
REPORT = "The Aomine brewery appointed Ms Takase as master brewer.\n\nShe follows Mr Aoyama. 青峰酒造 🍶"
MANY = 150

pytestmark = pytest.mark.database


def source(name, context="press"):
    return {"taguru_batch": 1, "context": context, "source": name, "create": {}}


def says(subject, label, object_, **more):
    return {"subject": subject, "label": label, "object": object_, "weight": 1.0, **more}


FILES = {
    "a.jsonl": stream(
        source("report.txt"),
        {"passage": REPORT, "date": 1_772_323_200, "stored_at": 1_772_323_300, "tags": ["press"]},
        {"paragraph": 0, "question": "Who brews at Aomine?"},
        {"paragraph": 1, "locator": {"kind": "page", "value": "3"}},
        says("Aomine", "master brewer", "Takase", paragraph=0, valid_from=1_772_323_200),
        says("Aomine", "founded in", "1832", paragraph=9),
        {"alias": "Aomine Shuzo", "canonical": "Aomine", "kind": "concept"},
    ),
    "b/more.ndjson": stream(source("letter.txt"), says("Takase", "trained at", "Kuromatsu")),
    "c.jsonl": stream(
        source("minutes.txt"),
        says("Kuromatsu", "rival of", "Aomine") | {"weight": -0.5},
        {"taguru_group": 1, "name": "papers", "contexts": ["press"]},
    ),
    "notes.txt": b"not a stream\n",
}


def environment(home, address):
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("STRATA_", "OTEL_"))}
    own = {"STRATA_HOME": str(home), "STRATA_DATABASE_URL": address, "STRATA_EMBEDDINGS": "none"}
    return kept | own | {"PYTHONWARNINGS": "default"}


class Command:
    """The installed command over one database; what it writes to standard error is never a traceback."""

    def __init__(self, home, address):
        self.environ = environment(home, address)

    def __call__(self, *words, code=ExitCode.OK, given=b""):
        done = subprocess.run(
            [STRATA, *map(str, words)], env=self.environ, input=given, capture_output=True, timeout=120, check=False
        )
        error = done.stderr.decode()
        assert done.returncode == code, error
        assert "Traceback" not in error
        return done.stdout, error

    def document(self, *words, **more):
        return json.loads(self(*words, "--json", **more)[0])

    def refused(self, *words, code=ExitCode.USAGE, **more):
        """Return the one line that says why nothing came of a command."""
        out, error = self(*words, code=code, **more)
        line, remedy = error.splitlines()
        assert out == b""
        assert remedy.startswith("  remedy: ")
        return line

    def shell(self, script):
        """Run a pipe of the shell, of which any part may fail it."""
        line = f'set -euo pipefail; strata() {{ {shlex.quote(STRATA)} "$@"; }}; {script}'
        return subprocess.run(["bash", "-c", line], env=self.environ, capture_output=True, timeout=120, check=False)


async def _execute(address, *statements):
    connection = await asyncpg.connect(address)
    try:
        return [await connection.fetch(statement) for statement in statements][-1]
    finally:
        await connection.close()


@pytest.fixture(scope="module")
def addresses(server_dsn, template):
    """Two migrated databases that the tests of this module share."""
    names = [f"strata_exchange_{os.getpid()}_{number}" for number in range(2)]
    maintenance = with_database(server_dsn, "postgres")
    asyncio.run(_execute(maintenance, *(f"CREATE DATABASE {name} TEMPLATE {template}" for name in names)))
    yield [with_database(server_dsn, name) for name in names]
    asyncio.run(_execute(maintenance, *(f"DROP DATABASE {name} WITH (FORCE)" for name in names)))


def contexts(address):
    return {row[0] for row in asyncio.run(_execute(address, "SELECT name FROM context"))}


@pytest.fixture(scope="module")
def strata(home, addresses):
    return Command(home, addresses[0])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("streams")
    for name, content in FILES.items():
        (path / name).parent.mkdir(exist_ok=True)
        (path / name).write_bytes(content)
    return path


@pytest.fixture(scope="module")
def press(strata, addresses, folder):
    """A context that the folder's streams have made; gives its export."""
    dry = strata.document("import", folder, "--dry-run")
    assert contexts(addresses[0]) == set()
    assert strata.document("import", folder) == dry
    names = [batch["source"] for batch in dry["batches"]]
    assert names == ["report.txt", "letter.txt", "minutes.txt"]
    assert [batch["created"] for batch in dry["batches"]] == [True, False, False]
    assert dry["groups"] == [{"name": "papers", "outcome": "created", "contexts": 1, "groups": 0}]
    return strata("export", "press")[0]


def records(exported):
    return [json.loads(line) for line in exported.splitlines()]


def names_of(exported):
    return [record["source"] for record in records(exported) if "source" in record]


def test_a_folder_is_imported_by_path_and_a_dry_run_of_it_leaves_nothing(press):
    assert names_of(press) == ["letter.txt", "minutes.txt", "report.txt"]
    assert REPORT in [record.get("passage") for record in records(press)]


def test_several_files_are_one_stream_whose_progress_goes_to_standard_error_alone(strata, folder, press):
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [STRATA, "import", str(folder / "c.jsonl"), str(folder / "b"), "--no-embed", "--json"],
        env=strata.environ | {"TERM": "xterm"},
        stdout=subprocess.PIPE,
        stderr=theirs,
    ) as running:
        os.close(theirs)
        shown = b""
        # A terminal whose other side is closed answers with an error.
        with contextlib.suppress(OSError):
            while piece := os.read(ours, 65536):
                shown += piece
        out = running.stdout.read()
    os.close(ours)
    assert running.returncode == ExitCode.OK
    assert b"import" in shown
    assert [batch["source"] for batch in json.loads(out)["batches"]] == ["minutes.txt", "letter.txt"]


def test_an_export_piped_into_another_database_exports_the_same_bytes(strata, addresses, press, tmp_path):
    other = f"STRATA_DATABASE_URL={shlex.quote(addresses[1])}"
    done = strata.shell(
        f"strata export press | {other} strata import - >{tmp_path}/said; {other} strata export press -o {tmp_path}/out"
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert (tmp_path / "said").read_text() == "imported 3 sources, 4 facts, 1 text\n"
    assert (tmp_path / "out").read_bytes() == press


def test_the_form_by_id_imports_back_to_the_same_state(strata, press):
    exported, _ = strata("export", "press", "--form", "id")
    headers = [record for record in records(exported) if record.get("type") == "source"]
    assert [header["id"] for header in headers] == names_of(press)
    assert headers[0]["create"]["name"] == "press"
    taken = strata.document("import", "-", given=exported)
    assert {batch["context_id"] for batch in taken["batches"]} == {headers[0]["context_id"]}
    assert strata("export", "press")[0] == press


def test_a_source_in_two_files_is_refused_with_both_places(strata, addresses, tmp_path):
    (tmp_path / "1.jsonl").write_bytes(stream(source("one", "twice"), says("a", "l", "b")))
    (tmp_path / "2.jsonl").write_bytes(b"\n" + stream(source("one", "twice")))
    line = strata.refused("import", tmp_path)
    assert line.startswith(f"error[invalid_request]: {tmp_path}/2.jsonl: line 2: ")
    assert f"{tmp_path}/1.jsonl line 1" in line
    assert "twice" not in contexts(addresses[0])


@pytest.mark.parametrize(
    ("words", "given", "said"),
    [
        (("import", "-"), stream(source("x")) + b'{"subject": "a", "lable": 1}\n', "standard input: line 2: "),
        (("import", "{}"), b"", "holds no .jsonl or .ndjson files"),
        (("import", "{}/missing.jsonl"), b"", "There is no "),
        (("import", "-"), stream({"taguru_batch": 1, "context": "nowhere", "source": "x"}), "context_not_found"),
        (("export", "press", "--output", "{}/missing/out"), b"", "There is no folder "),
        (("communities", "build", "nowhere"), b"", "context_not_found"),
    ],
)
def test_what_cannot_be_begun_is_exit_code_2(strata, tmp_path, words, given, said):
    line = strata.refused(*(word.format(tmp_path) for word in words), given=given)
    assert said in line


def test_a_conflict_is_exit_code_1_and_what_came_before_it_stands(strata, tmp_path):
    path = tmp_path / "stream.jsonl"
    alias = {"alias": "bee", "canonical": "nothing", "kind": "concept"}
    path.write_bytes(
        stream(source("one", "mended"), says("a", "l", "b"), source("two", "mended"), says("b", "l", "c"), alias)
    )
    dry = strata.refused("import", path, "--dry-run", code=ExitCode.FAILED)
    assert dry.startswith(f"error[conflict]: {path}: line 3: Source 2 of 2 was refused, nothing was written.")
    line = strata.refused("import", path, code=ExitCode.FAILED)
    assert line.startswith(f"error[conflict]: {path}: line 3: Source 2 of 2 was refused, 1 before it stand")
    assert names_of(strata("export", "mended")[0]) == ["one"]


def test_a_strict_schema_refuses_with_exit_code_1(strata):
    relations = {"l": {"domain": [], "range": []}}
    schema = {"taguru_schema": 1, "context": "strict", "mode": "strict", "closed_labels": True, "types": {}}
    strata("import", "-", given=stream(source("one", "strict"), says("a", "l", "b"), schema | {"relations": relations}))
    given = stream(source("two", "strict"), says("a", "l", "c"), source("three", "strict"), says("a", "other", "c"))
    line = strata.refused("import", "-", code=ExitCode.FAILED, given=given)
    assert line.startswith(
        "error[schema_violation]: standard input: line 3: Source 2 of 2 was refused, 1 before it stand"
    )


def test_an_output_file_is_replaced_whole_or_not_at_all(strata, press, tmp_path):
    target = tmp_path / "out.jsonl"
    target.write_bytes(b"old")
    target.chmod(0o640)
    assert "is not a file" in strata.refused("export", "press", "--output", tmp_path)
    # The shell allows this process no byte in any file: the disk is as good as full.
    failed = strata.shell(f"ulimit -f 0; strata export press --output {target}")
    assert failed.returncode == ExitCode.USAGE
    assert failed.stderr.decode().startswith(f"error[invalid_request]: {target} cannot be written: ")
    assert target.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [target]
    out, _ = strata("export", "press", "--output", target)
    assert (out, target.read_bytes()) == (b"", press)
    assert target.stat().st_mode & 0o777 == 0o640
    assert list(tmp_path.iterdir()) == [target]


def test_ctrl_c_in_the_middle_leaves_whole_sources_and_a_repeat_is_exact(strata, addresses, tmp_path):
    context = "broken-off"

    def lines(number):
        yield source(f"{number:03}", context)
        yield {"passage": f"First of {number}.\n\nSecond of {number}.", "stored_at": 1_772_323_200}
        yield {"paragraph": 1, "question": f"Which is {number}?"}
        yield from (says(f"s{number}", "counts", f"o{number}-{fact}", paragraph=1) for fact in range(3))

    path = tmp_path / "many.jsonl"
    path.write_bytes(b"".join(stream(*lines(number)) for number in range(MANY)))
    with subprocess.Popen(
        [STRATA, "import", str(path)], env=strata.environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as running:
        asyncio.run(_stored(addresses[0], context, 10))
        running.send_signal(signal.SIGINT)
        out, error = running.communicate(timeout=60)
    assert (running.returncode, out, error) == (ExitCode.INTERRUPTED, b"", b"interrupted\n")
    part, _ = strata("export", context)
    taken = len(names_of(part))
    assert 10 <= taken < MANY
    strata("import", path)
    whole, _ = strata("export", context)
    assert names_of(whole) == [f"{number:03}" for number in range(MANY)]
    assert whole.startswith(part)


async def _stored(address, context, wanted):
    """Wait until a context has so many sources."""
    connection = await asyncpg.connect(address)
    try:
        deadline = time.monotonic() + 60
        query = "SELECT count(*) FROM source JOIN context USING (tenant_id, context_id) WHERE context.name = $1"
        while await connection.fetchval(query, context) < wanted:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.01)
    finally:
        await connection.close()


def test_communities_are_listed_without_writing_and_built_to_be_searched(strata, addresses, press):
    listed = strata.document("communities", "list", "press")
    assert listed["context"] == "press"
    members = [{member["name"] for member in one["members"]} for one in listed["communities"]]
    assert sorted(map(sorted, members)) == [["1832", "Aomine"], ["Kuromatsu", "Takase"]]
    table = strata("communities", "list", "press")[0].decode().splitlines()
    assert table[0].split()[:2] == ["COMMUNITY", "CONCEPTS"]
    assert [line.split()[:2] for line in table[1:]] == [["L0-0", "2"], ["L0-1", "2"]]
    assert "press::communities" not in contexts(addresses[0])
    out, _ = strata("communities", "build", "press")
    assert out == b"press::communities: 2 communities on 1 level\n"
    again = strata.document("communities", "build", "press")
    assert again == {"derived": "press::communities", "communities": 2, "levels": 1, "removed": 0}
    built, _ = strata("export", "press::communities")
    assert {"community:L0-0", "community:L0-1"} <= set(names_of(built))
