"""What every command shares: exit codes, settings, errors as one line, and clean interruption."""

from __future__ import annotations

import asyncio
import inspect
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from enum import IntEnum
from typing import TYPE_CHECKING, Any, TypeVar

from strata.errors import INTERNAL, INVALID_REQUEST, INVALID_SETTING, StrataError
from strata.settings import Settings, load_settings

if TYPE_CHECKING:
    from strata.services import Services

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


class ExitCode(IntEnum):
    """The exit codes of every command (docs/cli.md)."""

    OK = 0
    FAILED = 1
    USAGE = 2
    PARTIAL = 3
    NOTHING_FOUND = 4
    INTERRUPTED = 130
    OUTPUT_CLOSED = 141
    TERMINATED = 143


class OutputClosedError(Exception):
    """Whoever read standard output has gone: ``strata lookup ... | head -1``."""


class TerminatedError(BaseException):
    """SIGTERM arrived while a command ran; everything it had open is closed by now."""


def examples(*lines: str) -> Callable[[F], F]:
    """Add examples to the help of a command, each line as it is typed."""

    def extend(command: F) -> F:
        # The backspace keeps the help from folding the paragraph.
        block = "".join(f"  {line}\n" for line in lines)
        command.__doc__ = f"{inspect.cleandoc(command.__doc__ or '')}\n\n\b\nExamples:\n{block}"
        return command

    return extend


def debugging() -> bool:
    """Tell whether failures show their traceback: ``--debug``, or STRATA_DEBUG set to anything but 0."""
    return os.environ.get("STRATA_DEBUG", "0") not in ("", "0")


def settings(**overrides: Any) -> Settings:
    """Read the settings; an override of None leaves the environment's value."""
    return load_settings(**overrides)


def bad_option(option: str, detail: str) -> StrataError:
    """Return the error of an option or argument that cannot be used."""
    return StrataError(INVALID_REQUEST, detail, pointer=option, remedy=f"Correct {option}; `--help` shows examples.")


def exit_code_of(error: StrataError) -> ExitCode:
    """Return USAGE where the caller must change the command or its input, FAILED where the operation failed."""
    caller_erred = 400 <= error.kind.status < 500 and error.kind.status != 409
    return ExitCode.USAGE if caller_erred or error.kind is INVALID_SETTING else ExitCode.FAILED


def report(error: StrataError) -> None:
    """Write the failure to standard error: one line, and one with the remedy."""
    # A JSON pointer or a query parameter means nothing to someone who typed options.
    pointer = error.pointer if error.pointer and error.pointer[0] not in "/?" else None
    place = f" ({pointer})" if pointer and pointer not in error.detail else ""
    remedy = error.remedy
    if remedy == INVALID_REQUEST.remedy:
        remedy = "Correct the option or argument; `--help` shows examples."
    report_line(error.code, f"{error.detail}{place}", remedy)


def report_line(code: str, detail: str, remedy: str) -> None:
    """Write ``error[code]: detail`` and the remedy to standard error."""
    red, dim, off = ("\x1b[31m", "\x1b[2m", "\x1b[0m") if _colours() else ("", "", "")
    with suppress(OSError, ValueError):
        print(f"{red}error[{code}]{off}: {one_line(detail)}", file=sys.stderr)
        print(f"{dim}  remedy: {one_line(remedy)}{off}", file=sys.stderr)


def report_defect(error: BaseException) -> None:
    """Report a failure that nothing foresaw."""
    remedy = "Run it again with --debug, and report the traceback."
    report_line(INTERNAL.code, f"{type(error).__name__}: {error}", remedy)


def one_line(text: str) -> str:
    """Fold white space and drop control characters, so that a message stays one line."""
    return "".join(char if char.isprintable() else " " for char in " ".join(text.split()))


def _colours() -> bool:
    return sys.stderr.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def run_async(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end; SIGTERM cancels it as Ctrl-C does, so that all is released.

    Raises TerminatedError after SIGTERM and KeyboardInterrupt after Ctrl-C.
    """
    terminated = False

    async def watched() -> T:
        task = asyncio.current_task()

        def stop() -> None:
            nonlocal terminated
            terminated = True
            if task is not None:
                task.cancel()

        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop)
        return await work

    try:
        return asyncio.run(watched())
    except asyncio.CancelledError:
        if terminated:
            raise TerminatedError from None
        raise


def with_services(use: Callable[[Services], Awaitable[T]], configured: Settings | None = None) -> T:
    """Open the services, call ``use`` with them, close them."""
    from strata.platform.telemetry import setup_telemetry, shutdown_telemetry
    from strata.services import open_services

    chosen = configured or settings()
    configure_logging(chosen)
    setup_telemetry(chosen)

    async def body() -> T:
        async with open_services(chosen) as services:
            return await use(services)

    try:
        return run_async(body())
    finally:
        shutdown_telemetry()


def configure_logging(configured: Settings) -> None:
    """Send log lines to standard error: warnings and worse, for people, unless STRATA_LOG_* say otherwise."""
    import msgspec

    from strata.platform.logging import setup_logging

    quiet = {"log_level": "warning", "log_format": "console"}
    unset = {field: value for field, value in quiet.items() if not os.environ.get(f"STRATA_{field.upper()}")}
    setup_logging(msgspec.structs.replace(configured, **unset))


@contextmanager
def output_may_close() -> Iterator[None]:
    """Turn a broken pipe on standard output into OutputClosedError, and only that."""
    try:
        yield
    except BrokenPipeError as error:
        raise OutputClosedError from error


def discard_output() -> None:
    """Point standard output at nothing, so that the interpreter's last flush cannot fail."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def confirm(question: str, *, yes: bool) -> None:
    """Ask before something final; without a terminal to ask on, ``--yes`` must have been given."""
    import typer

    if yes:
        return
    if not sys.stdin.isatty():
        raise bad_option("--yes", f"{question} There is no terminal to ask on.")
    if not typer.confirm(question, err=True):
        raise typer.Exit(ExitCode.FAILED)
