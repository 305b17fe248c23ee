"""``strata import`` and ``strata export``: whole sources in and out of contexts."""

from __future__ import annotations

import os
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Literal

import typer

from strata.cli import base, output
from strata.cli.base import examples
from strata.errors import INVALID_REQUEST, SCHEMA_VIOLATION, StrataError
from strata.platform.ids import DEFAULT_TENANT

if TYPE_CHECKING:
    from strata.exchange.records import SourceBatch
    from strata.exchange.schemas import Imported, ImportProgress
    from strata.services import Services

_SUFFIXES = (".jsonl", ".ndjson")
_STANDARD = "-"


@examples(
    "strata import corpus.jsonl",
    "strata import ./extracted --dry-run",
    "strata import - < corpus.jsonl",
)
def import_(
    paths: Annotated[list[str], typer.Argument(help="Files, folders of *.jsonl, or - for standard input.")],
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check everything, write nothing.")] = False,
    embed: Annotated[
        bool, typer.Option("--embed/--no-embed", help="Embed too, or leave that to a running server.")
    ] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Write the outcome as JSON.")] = False,
) -> None:
    """Import streams of sources: facts, aliases, texts, questions, sections and locators.

    Everything is read before anything is written: a malformed stream is refused whole, by file and line,
    with exit code 2. Each source then replaces all that it said before, in one transaction. One that its
    context refuses (a conflict, a strict schema) ends the run with 1: what came before it stands, and
    importing the mended stream again is exact.
    """
    from strata.cli.embeddings import run_embeddings
    from strata.exchange.parse import parse_streams

    stream = parse_streams(_streams(paths))
    done = 0

    async def take(services: Services) -> Imported:
        from strata.cli.progress import Progress

        with Progress() as bar:

            def seen(state: ImportProgress) -> None:
                nonlocal done
                done = state.done
                bar.stage("import", state.done, state.total)

            imported = await services.exchange.import_stream(DEFAULT_TENANT, stream, dry_run=dry_run, progress=seen)
        if embed and not dry_run and services.embeddings.is_on:
            for context in sorted({batch.context for batch in stream.sources}):
                await run_embeddings(services, context)
        await services.sources.settle()
        return imported

    try:
        imported = base.with_services(take)
    except StrataError as error:
        raise _refusal(_placed(error, stream.sources, done)) from error
    if as_json:
        output.json_document(imported.result)
    else:
        _show(imported, is_dry=dry_run)


@examples(
    "strata export handbook > handbook.jsonl",
    "strata export handbook --output handbook.jsonl",
    "strata export handbook --form id",
)
def export(
    context: Annotated[str, typer.Argument(help="The context, by name or id.")],
    *,
    target: Annotated[
        Path | None, typer.Option("--output", "-o", help="The file to write; replaced whole, or not at all.")
    ] = None,
    form: Annotated[Literal["name", "id"], typer.Option(help="Name contexts by name or by id.")] = "name",
) -> None:
    """Export a context as a stream that imports back to the same state.

    The bytes depend on the state alone: two exports of one state are equal, and a diff shows what changed.
    """
    from strata.exchange.records import Form

    async def write(services: Services) -> None:
        with _target(target) as put:
            async for piece in await services.exchange.export(DEFAULT_TENANT, context, form=Form(form)):
                put(piece)

    base.with_services(write)


def _show(imported: Imported, *, is_dry: bool) -> None:
    batches = imported.result.batches
    words = [
        output.count(len(batches), "source"),
        output.count(sum(batch.associations for batch in batches), "fact"),
        output.count(sum(batch.passage_stored for batch in batches), "text"),
    ]
    output.line(f"{'would import' if is_dry else 'imported'} {', '.join(words)}")
    dropped = sum(batch.association_paragraphs_dropped for batch in batches)
    if dropped:
        output.line(f"{output.count(dropped, 'fact')} kept without the paragraph, which the text does not have")
    if imported.violations:
        output.line(f"{output.count(imported.violations, 'fact')} against the schema of the context (mode warn)")


def _placed(error: StrataError, sources: Sequence[SourceBatch], done: int) -> StrataError:
    """Return the refusal of a source with its file and line; ``done`` sources had been taken.

    ``invalid_request`` is left as it is: it may be said of any text before the first source is taken.
    """
    if "integrity" not in error.extra or error.kind is INVALID_REQUEST or done >= len(sources):
        return error
    at = sources[done]
    detail = f"{at.file}: line {at.line}: {error.detail}"
    return StrataError(error.kind, detail, pointer=error.pointer, remedy=error.remedy, extra=error.extra)


def _refusal(error: StrataError) -> Exception:
    """Return what ends the command: a strict schema refuses by the state of its context, as a conflict does."""
    if error.kind is not SCHEMA_VIOLATION:
        return error
    if base.debugging():
        traceback.print_exception(error)
    base.report(error)
    return typer.Exit(base.ExitCode.FAILED)


@contextmanager
def _target(given: Path | None) -> Iterator[Callable[[bytes], object]]:
    """Give what takes the bytes: standard output, or a file that is replaced at the end."""
    if given is None or str(given) == _STANDARD:
        yield output.binary
        return
    with _replacing(given) as file:
        yield file.write


@contextmanager
def _replacing(given: Path) -> Iterator[IO[bytes]]:
    """Give a file that takes the place of another when all went well, and vanishes otherwise."""
    target = given.resolve()
    if not target.parent.is_dir():
        raise base.bad_option("--output", f"There is no folder {given.parent}.")
    if target.exists() and not target.is_file():
        raise base.bad_option("--output", f"{given} is not a file.")
    written: Path | None = None
    try:
        with tempfile.NamedTemporaryFile(dir=target.parent, prefix=".strata-", delete=False) as file:
            written = Path(file.name)
            yield file
        written.chmod(target.stat().st_mode & 0o7777 if target.exists() else 0o666 & ~_umask())
        written.replace(target)
    except BaseException as error:
        if written is not None:
            written.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise base.bad_option("--output", f"{given} cannot be written: {error.strerror}.") from error
        raise


def _umask() -> int:
    """Return which permissions new files of this process lack; reading it sets it for a moment."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _streams(paths: Iterable[str]) -> Iterator[tuple[str, bytes]]:
    """Yield every file with its name: folders give their streams in order of path."""
    for given in paths:
        if given == _STANDARD:
            yield "standard input", sys.stdin.buffer.read()
            continue
        path = Path(given)
        if path.is_dir():
            files = sorted(file for file in path.rglob("*") if file.suffix in _SUFFIXES and file.is_file())
            if not files:
                raise base.bad_option("PATH", f"{path} holds no {' or '.join(_SUFFIXES)} files.")
        elif path.is_file():
            files = [path]
        else:
            raise base.bad_option("PATH", f"There is no {path}.")
        for file in files:
            yield str(file), _read(file)


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise base.bad_option("PATH", f"{file} cannot be read: {error.strerror}.") from error
