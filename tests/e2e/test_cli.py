"""The installed ``strata`` command as people and scripts use it, over an embedded server of its own."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import pytest

from strata.cli.base import ExitCode
from strata.platform.embedded import EmbeddedPostgres

STRATA = Path(sys.executable).with_name("strata")
HANDBOOK = {
    "leave.md": "# Leave\n\n## Parental leave\n\nParental leave lasts sixteen weeks and is paid in full.\n\n"
    "## Holidays\n\nEveryone has thirty days of holiday a year.\n",
    "retention.md": "---\ncategory: legal\n---\n# Data retention\n\nInvoices are kept for ten years.\n",
    "hours.txt": "The office is open from nine to five on working days.\n",
    "empty.md": "",
}

pytestmark = pytest.mark.database


def environment(home, **changes):
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("STRATA_", "OTEL_"))}
    return kept | {"STRATA_HOME": str(home), "STRATA_EMBEDDINGS": "none", "PYTHONWARNINGS": "default"} | changes


def strata(home, *words, code=ExitCode.OK, given=None, **changes):
    """Run the command and check its exit code; stderr never holds a traceback."""
    done = subprocess.run(
        [STRATA, *map(str, words)],
        env=environment(home, **changes),
        input=given,
        capture_output=True,
        timeout=120,
        check=False,
    )
    error = done.stderr.decode()
    assert done.returncode == code, error
    assert "Traceback" not in error
    return done.stdout.decode(), error


def document(home, *words, **kwargs):
    return json.loads(strata(home, *words, "--json", **kwargs)[0])


@pytest.fixture(scope="module")
def folder():
    """A small handbook; one file of it cannot be taken."""
    path = Path(tempfile.mkdtemp(prefix="strata-e2e-docs-"))
    for name, text in HANDBOOK.items():
        (path / name).write_text(text)
    yield path
    shutil.rmtree(path)


@pytest.fixture(scope="module")
def empty_home():
    path = Path(tempfile.mkdtemp(prefix="strata-e2e-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="module")
def home(empty_home, folder):
    """A home that the first ingest has made; the server is kept running between commands, for speed."""
    with EmbeddedPostgres(empty_home, fsync=False):
        report = document(empty_home, "ingest", folder, "--context", "handbook", code=ExitCode.PARTIAL)
        assert report["added"] == 3
        assert [refusal["path"] for refusal in report["refusals"]] == ["empty.md"]
        yield empty_home


def test_an_unchanged_folder_is_a_no_op(home, folder):
    out, _ = strata(home, "ingest", folder, "-c", "handbook", code=ExitCode.PARTIAL)
    assert re.search(r"^handbook: 3 unchanged, 1 refused;", out, re.MULTILINE)
    assert "refused empty.md: empty:" in out


def test_a_lookup_finds_evidence_and_cites_its_bytes(home):
    result = document(home, "lookup", "How long is parental leave?", "-c", "handbook")
    assert result["found"]
    best = result["evidenceBlocks"][0]
    assert best["source"] == "leave.md"
    cited = best["citation"]
    text, _ = strata(
        home, "sources", "text", "leave.md", "-c", "handbook", "--start", cited["startByte"], "--end", cited["endByte"]
    )
    assert "sixteen weeks" in text
    assert text in HANDBOOK["leave.md"]


def test_a_lookup_reads_well_in_a_pipe(home):
    out, error = strata(home, "lookup", "-", "-c", "handbook", given=b"How long is parental leave?\n")
    assert re.search(r"^(HIGH|MEDIUM|LOW) relevance, ", out)
    assert re.search(r"^ 1  Leave", out, re.MULTILINE)
    assert re.search(r"^    leave.md:\d+-\d+$", out, re.MULTILINE)
    assert "sixteen weeks" in out
    assert "why: " in out
    assert "\x1b" not in out
    assert error == ""


def test_a_lookup_with_a_budget_prints_markdown_or_json_within_it(home):
    asked = ("lookup", "How long is parental leave?", "-c", "handbook", "--budget", "600")
    out, _ = strata(home, *asked)
    assert out.startswith("### 1")
    assert re.search(r"^> .*sixteen weeks", out, re.MULTILINE)
    assert re.search(r"^\d+ of 600 tokens\.$", out, re.MULTILINE)
    found = document(home, *asked)
    assert found["budget"]["used"] <= 600
    cited = found["blocks"][0]
    text, _ = strata(
        home, "sources", "text", cited["at"].partition("#")[0], "-c", "handbook",
        "--start", cited["bytes"][0], "--end", cited["bytes"][1],
    )  # fmt: skip
    assert text == cited["text"]
    _, error = strata(home, *asked, "--max-tokens", "5", code=ExitCode.USAGE)
    assert "--budget" in error
    _, error = strata(home, *asked[:-1], "3", code=ExitCode.USAGE)
    assert "--budget" in error


def test_colour_is_there_when_forced_and_off_by_no_color(home):
    coloured = re.compile(r"\x1b\[[\d;]*3\dm")
    words = ("lookup", "parental leave", "-c", "handbook")
    assert coloured.search(strata(home, *words, FORCE_COLOR="1")[0])
    assert not coloured.search(strata(home, *words, FORCE_COLOR="1", NO_COLOR="1")[0])


def test_nothing_found_is_exit_code_4_and_is_recorded(home):
    result = document(home, "lookup", "xyzzy plugh", "-c", "handbook", code=ExitCode.NOTHING_FOUND)
    assert not result["found"]
    assert result["emptyReason"] == "UNKNOWN_TERMS"
    shown = document(home, "invocations", "show", result["lookupId"])
    assert shown["status"] == "NOT_FOUND"
    assert shown["surface"] == "CLI"


def test_a_missing_source_has_its_stage_and_reason(home):
    result = document(home, "lookup", "parental leave", "-c", "handbook", "--top-k", "1")
    told = document(home, "invocations", "why", result["lookupId"], "retention.md")
    assert not told["isSelected"]
    assert told["stage"]
    out, _ = strata(home, "invocations", "why", result["lookupId"], "leave.md")
    assert out.startswith("SELECTED")
    listed = document(home, "invocations", "list", "--context", "handbook", "--limit", "500")
    assert result["lookupId"] in [item["id"] for item in listed["items"]]


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("lookup", "x", "-c", "nowhere"), "error[context_not_found]: "),
        (("sources", "show", "nothing.md", "-c", "handbook"), "error[source_not_found]: "),
        (("lookup", "\udcff", "--top-k", "999", "-c", "handbook"), "error[invalid_request]: "),
    ],
)
def test_bad_input_is_exit_code_2_and_two_lines(home, words, error):
    out, said = strata(home, *words, code=ExitCode.USAGE)
    assert out == ""
    assert said.startswith(error)
    assert said.count("\n") == 2


def test_sources_are_listed_and_shown(home):
    listed = document(home, "sources", "list", "-c", "handbook")
    assert [source["path"] for source in listed["items"]] == ["hours.txt", "leave.md", "retention.md"]
    out, _ = strata(home, "sources", "show", "leave.md", "-c", "handbook")
    assert "Parental leave" in out


def test_an_archived_source_is_read_by_its_pins(home, folder):
    shutil.copy(folder / "hours.txt", folder / "open.txt")
    try:
        strata(home, "ingest", folder / "open.txt", "-c", "archive")
        (folder / "open.txt").write_text("The office is closed.\n")
        strata(home, "ingest", folder / "open.txt", "-c", "archive")
    finally:
        (folder / "open.txt").unlink()
    assert strata(home, "sources", "text", "open.txt/v1", "-c", "archive")[0] == HANDBOOK["hours.txt"]
    _, error = strata(home, "sources", "archive", "open.txt", "-c", "archive", code=ExitCode.USAGE)
    assert "--yes" in error
    _, said = strata(home, "sources", "archive", "open.txt", "-c", "archive", "--yes")
    assert "open.txt/v2" in said
    _, error = strata(home, "sources", "text", "open.txt", "-c", "archive", code=ExitCode.USAGE)
    assert error.startswith("error[source_archived]: ")
    assert "open.txt/v2" in error
    assert document(home, "sources", "list", "-c", "archive")["items"] == []
    assert "open.txt/v2" in strata(home, "sources", "list", "-c", "archive", "--archived")[0]
    assert "2, archived" in strata(home, "sources", "show", "open.txt/v2", "-c", "archive")[0]
    revisions = document(home, "sources", "revisions", "open.txt", "-c", "archive")
    assert [(one["pin"], one["state"]) for one in revisions["items"]] == [
        ("open.txt/v2", "ARCHIVED"),
        ("open.txt/v1", "RETIRED"),
    ]
    shown, more = strata(home, "sources", "revisions", "open.txt/v1", "-c", "archive", "--limit", 1)
    assert "open.txt/v2  archived" in shown
    assert "--cursor" in more
    strata(home, "sources", "delete", "open.txt", "-c", "archive", "--yes")
    strata(home, "sources", "text", "open.txt/v1", "-c", "archive", code=ExitCode.USAGE)


def test_relations_are_listed_and_those_that_dangle_are_told(home, tmp_path):
    (tmp_path / "new.md").write_text("---\nrel-supersedes: old.md\nrel-depends-on: none.md#x\n---\n# New\n\n[[Old]]\n")
    (tmp_path / "old.md").write_text("# Old\n\n## Part\n\nWords.\n")
    _, said = strata(home, "ingest", tmp_path, "-c", "related")
    assert "1 declared relation leads nowhere: `strata sources relations --dangling --context related`" in said
    out, _ = strata(home, "sources", "relations", "--dangling", "-c", "related")
    assert re.search(r"^new.md +depends-on +none.md#x +dangling$", out, re.MULTILINE)
    out, _ = strata(home, "sources", "relations", "new.md", "-c", "related", "--all")
    assert [line.split()[:4] for line in out.splitlines()[1:]] == [
        ["outgoing", "supersedes", "old.md", "resolved"],
        ["outgoing", "depends-on", "none.md#x", "dangling"],
        ["outgoing", "link", "old.md", "resolved"],
    ]
    out, _ = strata(home, "sources", "show", "old.md", "-c", "related")
    assert re.search(r"^superseded by +new.md$", out, re.MULTILINE)
    assert re.search(r"^incoming +supersedes +new.md +resolved +New$", out, re.MULTILINE)
    page = document(
        home, "sources", "relations", "old.md", "-c", "related", "--direction", "incoming", "--links", "--limit", 1
    )
    assert [(item["source"]["path"], item["count"]) for item in page["items"]] == [("new.md", 1)]
    assert "No relations" in strata(home, "sources", "relations", "old.md", "-c", "related", "--predicate", "x")[1]
    for words in (
        ("--dangling", "old.md"),
        ("--direction", "up", "old.md"),
        ("--predicate", "x"),
        ("--limit", "0"),
        ("gone.md",),
    ):
        strata(home, "sources", "relations", *words, "-c", "related", code=ExitCode.USAGE)
    (tmp_path / "none.md").write_text("# None\n")
    assert "nowhere" not in strata(home, "ingest", tmp_path, "-c", "related")[1]


def test_a_document_is_fetched_and_explored_within_a_number_of_tokens(home):
    out, _ = strata(home, "sources", "fetch", "leave.md#holidays", "-c", "handbook")
    assert out.startswith("### Leave\n`leave.md/v1#holidays`; bytes ")
    assert "\n> Everyone has thirty days of holiday a year.\n" in out
    assert "Parental" not in out
    same = document(
        home, "sources", "fetch", "leave.md", "-c", "handbook", "--section", "Holidays", "--max-tokens", 300
    )
    assert same["anchor"] == "holidays"
    assert same["budget"]["used"] <= 300
    assert "- Parental leave `#parental-leave`" in strata(
        home, "sources", "fetch", "leave.md", "-c", "handbook", "--outline"
    )[0].replace("  -", "-")
    whole = document(home, "sources", "fetch", "leave.md", "-c", "handbook", "--whole")
    notice = document(home, "sources", "fetch", "leave.md", "-c", "handbook", "--known", whole["sha256"])
    assert notice["kind"] == "unchanged"
    part = document(home, "sources", "fetch", "leave.md", "-c", "handbook", "--start", same["startByte"])
    assert part["text"] == whole["text"][same["startByte"] :]
    card = strata(home, "sources", "explore", "leave.md", "-c", "handbook")[0]
    assert "> Parental leave lasts sixteen weeks" in card
    assert "- `retention.md` (Data retention)" in card
    assert document(home, "sources", "explore", "leave.md", "-c", "handbook")["card"]["pin"] == "leave.md/v1"
    for words in (
        ("leave.md#nope",),
        ("leave.md", "--outline", "--whole"),
        ("leave.md", "--max-tokens", 5),
        ("gone.md",),
    ):
        strata(home, "sources", "fetch", *words, "-c", "handbook", code=ExitCode.USAGE)


def test_a_hint_is_added_exported_and_leads_to_its_target(home):
    strata(home, "hints", "add", "Baby break", "-c", "handbook", "--target", "leave.md", "--summary", "See leave.")
    exported, _ = strata(home, "hints", "export", "-c", "handbook", "--format", "jsonl")
    assert "Baby break" in exported
    copied = document(home, "hints", "import", "-", "--format", "jsonl", "-c", "handbook", given=exported.encode())
    assert copied["unchanged"] == 1
    result = document(home, "lookup", "baby break", "-c", "handbook")
    assert "L0_EXACT" in [code for block in result["evidenceBlocks"] for code in block["hitReasons"]]


def test_whoever_closes_the_pipe_hears_nothing(home):
    command = f'{STRATA} sources text leave.md -c handbook | {{ exec 0<&-; sleep 3; }}; echo "${{PIPESTATUS[0]}}"'
    done = subprocess.run(["bash", "-c", command], env=environment(home), capture_output=True, timeout=60, check=True)
    assert done.stdout.decode().strip() in {str(int(ExitCode.OUTPUT_CLOSED)), "0"}
    assert done.stderr == b""


def test_deleting_needs_a_yes_and_is_final(home, folder):
    strata(home, "ingest", folder / "hours.txt", "-c", "scratch")
    _, error = strata(home, "contexts", "delete", "scratch", code=ExitCode.USAGE)
    assert "--yes" in error
    strata(home, "contexts", "delete", "scratch", "--yes")
    assert "scratch" not in [view["name"] for view in document(home, "contexts", "list")["items"]]


def test_the_doctor_finds_everything_in_order(home):
    report = document(home, "doctor")
    assert report["healthy"]
    assert {check["name"] for check in report["checks"]} >= {"database", "pgvector", "schema", "isolation", "clock"}


def test_the_doctor_says_how_to_mend_a_database_that_is_not_there(home):
    out, _ = strata(
        home, "doctor", code=ExitCode.FAILED, STRATA_DATABASE_URL="postgresql://strata:secret@127.0.0.1:1/strata"
    )
    assert re.search(r"^fail  database", out, re.MULTILINE)
    assert "mend: " in out
    assert "secret" not in out


def test_migrate_checks_and_repeats(home):
    assert document(home, "migrate", "--check")["current"]
    assert document(home, "migrate")["current"]


def test_a_judged_set_is_scored_and_leaves_no_context_behind(home, tmp_path):
    documents = {"d1": "Bees make honey.", "d2": "Whales sing songs.", "d3": "Owls hunt at night."}
    lines = [json.dumps({"_id": name, "title": "", "text": text}) for name, text in documents.items()]
    (tmp_path / "corpus.jsonl").write_text("\n".join(lines))
    (tmp_path / "queries.jsonl").write_text(json.dumps({"_id": "q1", "text": "who makes honey"}))
    (tmp_path / "qrels.tsv").write_text("query-id\tcorpus-id\tscore\nq1\td1\t1\n")
    scores = document(home, "evaluate", "beir", tmp_path)
    assert scores["lookup"]["ndcg@10"] == 1
    assert not [view for view in document(home, "contexts", "list")["items"] if view["name"].startswith("evaluate")]


def test_a_question_without_a_shared_word_is_answered_by_meaning(home, tmp_path):
    (tmp_path / "leave.md").write_text("# Leave\n\nStaff may stay at home for thirty days each year.\n")
    (tmp_path / "print.md").write_text("# Printers\n\nThe help desk replaces toner on the second floor.\n")
    local = {"STRATA_EMBEDDINGS": "local"}
    report = document(home, "ingest", tmp_path, "-c", "meaning", **local)
    assert (report["embedded"], report["vectorCoverage"]) == (2, 1.0)
    result = document(home, "lookup", "How much holiday do employees get?", "-c", "meaning", **local)
    assert result["evidenceBlocks"][0]["source"].endswith("leave.md")
    assert "L1_VECTOR:1" in result["evidenceBlocks"][0]["hitReasons"]


def test_ctrl_c_during_an_ingest_is_clean_and_the_next_run_goes_on(home, tmp_path):
    for number in range(3000):
        (tmp_path / f"{number}.md").write_text(f"# Page {number}\n\n" + f"Word{number} and more text. " * 60)
    started = subprocess.Popen(
        [STRATA, "ingest", str(tmp_path), "-c", "broken-off"],
        env=environment(home),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    time.sleep(2)
    started.send_signal(signal.SIGINT)
    _, error = started.communicate(timeout=60)
    assert started.returncode in {ExitCode.INTERRUPTED, ExitCode.OK}
    assert b"Traceback" not in error
    report = document(home, "ingest", tmp_path, "-c", "broken-off")
    assert report["added"] + report["unchanged"] == 3000


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_serve_ingests_prints_what_to_try_and_it_works(home, folder):
    port = free_port()
    words = ["serve", "--port", port, "--banner", "--ingest", folder, "-c", "handbook", "--try", "parental leave"]
    server = subprocess.Popen(
        [STRATA, *map(str, words)], env=environment(home), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        banner = ""
        while "Ctrl-C" not in banner:
            line = server.stdout.readline()
            assert line, server.stderr.read()
            banner += line
        assert "strata lookup 'parental leave' --context handbook" in banner
        body = re.search(r"-d '(.*)'", banner)[1].encode()
        request = urllib.request.Request(
            re.search(r"curl -s (\S+)", banner)[1], data=body, headers={"content-type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            assert json.load(answer)["evidenceBlocks"][0]["source"] == "leave.md"
        _, error = strata(home, "serve", "--port", port, code=ExitCode.USAGE)
        assert f"Port {port} of 127.0.0.1 is in use" in error
    finally:
        server.send_signal(signal.SIGTERM)
        server.communicate(timeout=60)


def test_the_embedded_server_starts_for_a_command_and_stops_after_it(folder):
    path = Path(tempfile.mkdtemp(prefix="strata-e2e-alone-"))
    path.chmod(0o755)
    try:
        report = document(path, "doctor")
        assert report["healthy"]
        assert not (path / "postgres").exists()
        strata(path, "ingest", folder / "leave.md")
        assert not EmbeddedPostgres(path).status().running
    finally:
        shutil.rmtree(path, ignore_errors=True)
