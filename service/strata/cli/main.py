"""The ``strata`` command: sub-commands, and the one place where failures become exit codes."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Sequence
from typing import Annotated

import typer
from typer.exceptions import Abort, TyperException

from strata.cli import (
    base,
    communities,
    contexts,
    doctor,
    embeddings,
    evaluate,
    exchange,
    hints,
    ingest,
    invocations,
    lookup,
    mcp,
    migrate,
    serve,
    sources,
    version,
)
from strata.cli.base import ExitCode, OutputClosedError, TerminatedError
from strata.errors import StrataError

HELP = """Find checkable evidence for a question in your documents.

\b
Start here:
  strata ingest ./handbook --context handbook
  strata lookup "How long is parental leave?" --context handbook
  strata serve
  strata doctor

All local state lives below STRATA_HOME. A database is started for you unless
STRATA_DATABASE_URL names one. Exit codes: 0 ok, 1 failed, 2 usage or bad input,
3 some documents refused or a
threshold not kept, 4 nothing found, 130 interrupted.
"""

app = typer.Typer(
    name="strata",
    help=HELP,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    add_completion=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def _version(wanted: bool) -> None:
    if wanted:
        version.show(as_json=False)
        raise typer.Exit


@app.callback()
def options(
    _version_flag: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks (also STRATA_DEBUG=1).")] = False,
) -> None:
    """Take the options that come before a command."""


app.command("serve")(serve.serve)
app.command("ingest")(ingest.ingest)
app.command("lookup")(lookup.lookup)
app.command("import")(exchange.import_)
app.command("export")(exchange.export)
app.command("mcp")(mcp.mcp)
app.add_typer(contexts.app, name="contexts")
app.add_typer(sources.app, name="sources")
app.add_typer(hints.app, name="hints")
app.add_typer(communities.app, name="communities")
app.add_typer(embeddings.app, name="embeddings")
app.add_typer(invocations.app, name="invocations")
app.add_typer(evaluate.app, name="evaluate")
app.command("migrate")(migrate.migrate)
app.command("doctor")(doctor.doctor)
app.command("version")(version.version)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; never lets a traceback out unless debugging."""
    _prepare_streams()
    words = _without_debug(sys.argv[1:] if arguments is None else list(arguments))
    try:
        code = app(args=words, prog_name="strata", standalone_mode=False)
        if code == ExitCode.INTERRUPTED:
            _failed(KeyboardInterrupt())
        with base.output_may_close():
            sys.stdout.flush()
    except (Exception, KeyboardInterrupt, TerminatedError) as error:  # noqa: BLE001 - the last border
        code = _failed(error)
    if arguments is None:
        # The work is done: Ctrl-C while the interpreter winds up must not change what came of it.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    return int(code or 0)


def _without_debug(words: list[str]) -> list[str]:
    """Obey ``--debug`` wherever it stands: people add it to the end of what has just failed."""
    end = words.index("--") if "--" in words else len(words)
    if "--debug" in words[:end]:
        os.environ["STRATA_DEBUG"] = "1"
    return [word for word in words[:end] if word != "--debug"] + words[end:]


def _failed(error: BaseException) -> ExitCode:
    """Report a failure and return the exit code that stands for it."""
    if base.debugging() and not isinstance(error, TyperException):
        traceback.print_exception(error)
    match error:
        case StrataError():
            base.report(error)
            code = base.exit_code_of(error)
        case TyperException():
            code = _usage(error)
        case KeyboardInterrupt() | Abort():
            print("interrupted", file=sys.stderr)
            code = ExitCode.INTERRUPTED
        case TerminatedError():
            code = ExitCode.TERMINATED
        case OutputClosedError():
            base.discard_output()
            code = ExitCode.OUTPUT_CLOSED
        case _:
            base.report_defect(error)
            code = ExitCode.FAILED
    return code


def _usage(error: TyperException) -> ExitCode:
    message = error.format_message()
    context = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError":
        print(message, file=sys.stderr)
        return ExitCode.USAGE
    path = context.command_path if context is not None else "strata"
    base.report_line("usage", message, f"See `{path} --help`.")
    return ExitCode.USAGE


def _prepare_streams() -> None:
    """Never fail for a character that the terminal's encoding lacks."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="replace")
