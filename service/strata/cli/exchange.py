"""``strata import`` and ``strata export``: whole sources in and out of contexts."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Literal

import typer

from strata.cli import base, output
from strata.cli.base import examples
from strata.platform.ids import DEFAULT_TENANT

if TYPE_CHECKING:
    from strata.exchange.schemas import Imported, ImportProgress
    from strata.services import Services

_SUFFIXES = (".jsonl", ".ndjson")


@examples(
    "strata import corpus.jsonl",
    "strata import ./extracted --dry-run",
    "strata export handbook | strata import -",
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

    Everything is read before anything is written; an error names the file and the line. Each source
    replaces all that it said before, whole, in one transaction. The exit code is 1 when something was
    refused: what came before it stands, and importing the mended stream again is exact.
    """
    from strata.cli.embeddings import run_embeddings
    from strata.exchange.parse import parse_streams

    stream = parse_streams(_streams(paths))

    async def take(services: Services) -> Imported:
        from strata.cli.progress import Progress

        with Progress() as bar:

            def seen(state: ImportProgress) -> None:
                bar.stage("import", state.done, state.total)

            imported = await services.exchange.import_stream(DEFAULT_TENANT, stream, dry_run=dry_run, progress=seen)
        if embed and not dry_run and services.embeddings.is_on:
            for context in sorted({batch.context for batch in stream.sources}):
                await run_embeddings(services, context)
        await services.sources.settle()
        return imported

    imported = base.with_services(take)
    if as_json:
        output.json_document(imported.result)
        return
    batches = imported.result.batches
    words = [
        output.count(len(batches), "source"),
        output.count(sum(batch.associations for batch in batches), "fact"),
        output.count(sum(batch.passage_stored for batch in batches), "text"),
    ]
    output.line(f"{'would import' if dry_run else 'imported'} {', '.join(words)}")
    dropped = sum(batch.association_paragraphs_dropped for batch in batches)
    if dropped:
        output.line(f"{dropped:,} facts named a paragraph that their text does not have; the facts were kept")
    if imported.violations:
        output.line(f"{imported.violations:,} facts go against the schema document of their context (mode warn)")


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
        pieces = await services.exchange.export(DEFAULT_TENANT, context, form=Form(form))
        if target is None:
            async for piece in pieces:
                output.binary(piece)
            return
        with _replacing(target) as file:
            async for piece in pieces:
                file.write(piece)

    base.with_services(write)


@contextmanager
def _replacing(target: Path) -> Iterator[IO[bytes]]:
    """Give a file that takes the place of ``target`` when all went well, and vanishes otherwise."""
    if not target.parent.is_dir():
        raise base.bad_option("--output", f"There is no folder {target.parent}.")
    with tempfile.NamedTemporaryFile(dir=target.parent, prefix=f".{target.name}.", delete=False) as file:
        written = Path(file.name)
        try:
            yield file
        except BaseException:
            written.unlink(missing_ok=True)
            raise
    written.replace(target)


def _streams(paths: Iterable[str]) -> Iterator[tuple[str, bytes]]:
    """Yield every file with its name: folders give their streams in order of path."""
    for given in paths:
        if given == "-":
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
            yield str(file), file.read_bytes()
