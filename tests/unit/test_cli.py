"""The command line without a database: errors, exit codes, how things read."""

import contextlib
import io
import json
import sys
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strata.cli import base, invocations, output
from strata.cli.base import ExitCode
from strata.cli.evidence import highlighted, reason
from strata.cli.main import main
from strata.cli.progress import pace
from strata.errors import CATALOGUE, StrataError


@pytest.mark.parametrize(
    "words",
    [["--nonsense"], ["nonsense"], ["lookup"], ["lookup", "x", "--top-k", "many"], ["migrate", "--check", "--sql"]],
)
def test_wrong_usage_is_one_line_with_a_remedy_and_exit_code_2(words, capsys):
    assert main(words) == ExitCode.USAGE
    error = capsys.readouterr().err
    assert error.startswith("error[")
    assert error.count("\n") == 2
    assert "  remedy: " in error
    assert "Traceback" not in error


def test_a_mistyped_command_is_corrected(capsys):
    assert main(["lokup", "x"]) == ExitCode.USAGE
    assert "lookup" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["--version"], ["version"], ["--help"], ["lookup", "--help"]])
def test_version_and_help_succeed(words, capsys):
    assert main(words) == ExitCode.OK
    assert capsys.readouterr().out


def test_no_command_shows_the_help_and_is_wrong_usage(capsys):
    assert main([]) == ExitCode.USAGE
    assert "Usage: strata" in capsys.readouterr().err


def test_a_bad_setting_names_its_variable(monkeypatch, capsys):
    monkeypatch.setenv("STRATA_PORT", "abc")
    assert main(["contexts", "list"]) == ExitCode.USAGE
    assert "STRATA_PORT" in capsys.readouterr().err


def test_a_missing_path_is_named(capsys):
    assert main(["ingest", "/nowhere/at/all"]) == ExitCode.USAGE
    assert "/nowhere/at/all" in capsys.readouterr().err


def test_an_invalid_id_is_bad_input(capsys):
    assert main(["invocations", "why", "not-an-id", "x.md"]) == ExitCode.USAGE
    assert "INVOCATION" in capsys.readouterr().err


def test_a_defect_is_one_line_unless_debugging(monkeypatch, capsys):
    def broken(**_):
        raise ZeroDivisionError("a\nb")

    monkeypatch.setattr("strata.cli.version.show", broken)
    monkeypatch.delenv("STRATA_DEBUG", raising=False)
    assert main(["version"]) == ExitCode.FAILED
    assert capsys.readouterr().err.startswith("error[internal_error]: ZeroDivisionError: a b\n")
    monkeypatch.setenv("STRATA_DEBUG", "1")
    assert main(["version"]) == ExitCode.FAILED
    assert "Traceback" in capsys.readouterr().err


def test_debug_is_obeyed_wherever_it_stands(monkeypatch, capsys):
    monkeypatch.setenv("STRATA_DEBUG", "0")
    assert main(["invocations", "why", "not-an-id", "x.md", "--debug"]) == ExitCode.USAGE
    assert "Traceback" in capsys.readouterr().err


def test_ctrl_c_is_quiet(monkeypatch, capsys):
    def interrupted(**_):
        raise KeyboardInterrupt

    monkeypatch.setattr("strata.cli.version.show", interrupted)
    assert main(["version"]) == ExitCode.INTERRUPTED
    assert capsys.readouterr().err == "interrupted\n"


@pytest.mark.parametrize("kind", CATALOGUE.values(), ids=CATALOGUE)
def test_every_kind_of_error_has_its_exit_code(kind):
    code = base.exit_code_of(StrataError(kind, "x"))
    bad_input = kind.code == "invalid_setting" or (400 <= kind.status < 500 and kind.status != 409)
    assert code == (ExitCode.USAGE if bad_input else ExitCode.FAILED)


@given(st.text())
def test_an_error_is_always_two_printable_lines(detail):
    stream, kept = io.StringIO(), sys.stderr
    sys.stderr = stream
    try:
        base.report(StrataError(CATALOGUE["invalid_request"], detail, pointer="--context", remedy=detail))
    finally:
        sys.stderr = kept
    lines = stream.getvalue().split("\n")
    assert len(lines) == 3
    assert all(line.isprintable() for line in lines)


def test_a_pointer_into_a_body_is_not_shown_to_people(capsys):
    base.report(StrataError(CATALOGUE["invalid_request"], "Wrong.", pointer="/topK"))
    assert "/topK" not in capsys.readouterr().err


def test_a_document_cannot_steer_the_terminal():
    assert output.printable("a\x1b[31mb\x9bc\u202ed\r\n\te") == "a\ufffd[31mb\ufffdc\ufffdd\ufffd\n\te"


@pytest.mark.parametrize(
    ("number", "shown"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (1024**2, "1.0 MiB"), (1024**4, "1024.0 GiB")],
)
def test_bytes_read_well(number, shown):
    assert output.human_bytes(number) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0, "0.0 s"), (9.96, "10.0 s"), (59.4, "59 s"), (185, "3 min 05 s"), (7800, "2 h 10 min")]
)
def test_durations_read_well(seconds, shown):
    assert output.human_seconds(seconds) == shown


@pytest.mark.parametrize(
    ("number", "noun", "shown"), [(1, "source", "1 source"), (2000, "entry", "2,000 entries"), (0, "day", "0 days")]
)
def test_counts_read_well(number, noun, shown):
    assert output.count(number, noun) == shown


def test_a_table_in_a_pipe_has_no_colour_and_no_blanks_at_the_end(capsys):
    output.table(("A", "B"), [("long text " * 30, 1), ("x", None)], right=(1,))
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert "\x1b" not in "".join(lines)
    assert all(line == line.rstrip() for line in lines)


def test_json_is_one_document_in_utf_8(capfdbinary):
    output.json_document({"text": "日本語 \x1b"})
    assert json.loads(capfdbinary.readouterr().out) == {"text": "日本語 \x1b"}


@pytest.mark.parametrize(
    ("text", "age"),
    [
        ("30d", timedelta(days=30)),
        ("90m", timedelta(minutes=90)),
        (" 8W ", timedelta(weeks=8)),
        ("0s", timedelta()),
        ("99999w", timedelta(weeks=99999)),
    ],
)
def test_ages_are_understood(text, age):
    assert invocations._age(text) == age


@pytest.mark.parametrize("text", ["", "d", "30", "-3d", "3 y", "1e3d", "999999w"])
def test_what_is_no_age_is_refused(text):
    assert invocations._age(text) is None


@given(st.text())
def test_no_text_breaks_the_reading_of_ages_and_times(text):
    with contextlib.suppress(StrataError):
        assert isinstance(invocations._moment(text, "--since"), datetime)


def test_an_age_means_before_now():
    moment = invocations._moment("1d", "--since")
    assert timedelta(hours=23) < datetime.now(UTC) - moment < timedelta(hours=25)


@pytest.mark.parametrize(
    ("done", "total", "elapsed", "shown"),
    [
        (0, 10, 5, ""),
        (5, 10, 0.5, ""),
        (10, 10, 5, ", 2 passages/s"),
        (5, 10, 20, ", 0 passages/s, 20 s left"),
        (5000, 20000, 10, ", 1,000 passages/s, 30 s left"),
        (1, 0, 1, ", 1 passages/s"),
    ],
)
def test_rate_and_remaining_time_are_told_once_they_are_known(done, total, elapsed, shown):
    assert pace(done, total, done * 2 if total > 10 else done, "passage", elapsed) == shown


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("L1_LEXICAL:2", "place 2 by words"),
        ("L0_EXACT", "hint title"),
        ("CATEGORY_FILTER:hr:x", "category hr:x"),
        ("NEW_REASON:7", "NEW_REASON:7"),
    ],
)
def test_hit_reasons_are_put_in_words(code, words):
    assert reason(code) == words


def test_words_of_the_question_are_marked_in_any_script():
    marked = highlighted("Retention periods: 保存期間 は長い", ["retent", "保存"])
    assert {marked.plain[span.start : span.end] for span in marked.spans} == {"Retention", "保存"}


def test_confirmation_without_a_terminal_needs_yes(monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    with pytest.raises(StrataError) as refused:
        base.confirm("Delete?", yes=False)
    assert refused.value.pointer == "--yes"
    base.confirm("Delete?", yes=True)
