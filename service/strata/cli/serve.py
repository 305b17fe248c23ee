"""``strata serve``: the HTTP API."""

from __future__ import annotations

import errno
import json
import shlex
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from strata.cli import base, output
from strata.cli.base import examples
from strata.errors import INVALID_SETTING, StrataError
from strata.platform.ids import DEFAULT_TENANT
from strata.settings import Settings

if TYPE_CHECKING:
    from strata.services import Services


@examples(
    "strata serve",
    "strata serve --host 0.0.0.0 --port 9000 --workers 2",
    "strata serve --ingest ./handbook --context handbook",
)
def serve(
    *,
    host: Annotated[str | None, typer.Option(help="The address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(help="The port to listen on.")] = None,
    workers: Annotated[int | None, typer.Option(help="Server processes.")] = None,
    ingest: Annotated[list[Path] | None, typer.Option(metavar="PATH", help="Ingest this first; may repeat.")] = None,
    context: Annotated[str | None, typer.Option("--context", "-c", help="The context for --ingest.")] = None,
    banner: Annotated[
        bool | None, typer.Option("--banner/--no-banner", help="Print what to try; default on a terminal.")
    ] = None,
    question: Annotated[str | None, typer.Option("--try", help="The question that the banner asks.")] = None,
) -> None:
    """Serve the HTTP API until Ctrl-C."""
    configured = base.settings(host=host, port=port, workers=workers)
    require_free_port(configured.host, configured.port)
    for path in ingest or []:
        if not path.exists():
            raise base.bad_option("--ingest", f"There is no {path}.")

    async def prepare(services: Services) -> tuple[str, str] | None:
        if ingest:
            from strata.cli.ingest import run_ingest

            report = await run_ingest(services, context or "default", ingest, prune=True)
            for refusal in report.refusals:
                output.note(f"refused {refusal.path}: {refusal.reason}: {refusal.detail}")
        return await _example(services, context, question)

    with _database_kept(configured):
        example = base.with_services(prepare, configured)
        wants_banner = banner or (banner is None and sys.stdout.isatty())

        def ready(url: str) -> None:
            if wants_banner:
                _print_banner(url, example)

        from strata.platform.server import serve as serve_http

        serve_http(configured, on_ready=ready)


def require_free_port(host: str, port: int) -> None:
    """Raise ``invalid_setting`` unless the address can be listened on now; port 0 is always free."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[
            0
        ]
    except OSError as error:
        raise StrataError(INVALID_SETTING, f"There is no address {host!r}.", pointer="STRATA_HOST") from error
    with socket.socket(family, kind) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(address)
            probe.listen(1)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                detail = f"Port {port} of {host} is in use by another program."
                remedy = "Stop it, or choose another port: strata serve --port N, make run PORT=N."
            else:
                detail = f"Port {port} of {host} cannot be listened on: {error.strerror}."
                remedy = "Choose a port above 1023 and an address of this machine."
            raise StrataError(INVALID_SETTING, detail, pointer="STRATA_PORT", remedy=remedy) from error


@contextmanager
def _database_kept(configured: Settings) -> Iterator[None]:
    """Use the embedded server from the first check to the last worker, so that it does not restart between."""
    if configured.database_url:
        yield
        return
    from strata.platform.embedded import EmbeddedPostgres

    with EmbeddedPostgres(configured.home):
        yield


async def _example(services: Services, context: str | None, question: str | None) -> tuple[str, str] | None:
    """Return a context that holds something and a question for it; None when all is empty."""
    listed = (await services.contexts.list(DEFAULT_TENANT)).contexts
    names = [view.name for view in listed if view.sources and (context is None or context in (view.name, str(view.id)))]
    if not names:
        return None
    if question:
        return names[0], question
    page = await services.sources.list(DEFAULT_TENANT, names[0], limit=1)
    return names[0], page.sources[0].title or page.sources[0].path


def _print_banner(url: str, example: tuple[str, str] | None) -> None:
    output.line(f"Strata {metadata.version('strata')} serves on {url}")
    output.line()
    program = _program()
    if example is None:
        output.line(f"There is nothing to find yet:\n\n  {program} ingest PATH --context NAME\n")
    else:
        context, question = example
        body = json.dumps({"query": question, "context": context, "topK": 3}, ensure_ascii=False)
        output.line("Try:\n")
        output.line(f"  curl -s {url}/api/v1/lookup -H 'content-type: application/json' -d {shlex.quote(body)}\n")
        output.line(f"  {program} lookup {shlex.quote(question)} --context {shlex.quote(context)}\n")
    output.line("Ctrl-C stops it.")
    sys.stdout.flush()


def _program() -> str:
    """Return how this program was called, as a person would type it."""
    path = Path(sys.argv[0])
    if path.name != "strata":
        return "strata"
    try:
        return path.absolute().relative_to(Path.cwd()).as_posix()
    except ValueError:
        return "strata"
