"""``strata migrate``: bring the database to the schema that this version needs."""

from __future__ import annotations

from typing import Annotated

import typer

from strata.cli import base, output
from strata.cli.base import examples
from strata.errors import SCHEMA_OUTDATED, StrataError
from strata.settings import Settings


@examples(
    "strata migrate",
    "strata migrate --check",
    "strata migrate --sql > schema.sql",
    "strata migrate --revision 0001",
)
def migrate(
    sql: Annotated[bool, typer.Option("--sql", help="Write the SQL instead of running it.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Change nothing; exit with 1 unless current.")] = False,
    revision: Annotated[str, typer.Option(help="The revision to go to; an older one downgrades.")] = "head",
    as_json: Annotated[bool, typer.Option("--json", help="Write JSON.")] = False,
) -> None:
    """Bring the database to the schema that this version needs.

    Safe to repeat, and to run from several places at once: one migrates, the others wait.
    """
    if sql and (check or revision != "head"):
        raise base.bad_option("--sql", "--sql writes the whole schema; it takes neither --check nor --revision.")
    if check and revision != "head":
        raise base.bad_option("--check", "--check compares with the newest revision; it takes no --revision.")
    if sql:
        from strata.platform.migrations import migration_sql

        output.line(migration_sql().rstrip())
        return
    configured = base.settings()
    base.configure_logging(configured)
    present, needed = base.run_async(_check(configured) if check else _migrate(configured, revision))
    if as_json:
        output.json_document({"before": present, "revision": needed, "current": present == needed})
    if check and present != needed:
        raise StrataError(
            SCHEMA_OUTDATED, f"The database is at revision {present or 'none'}; this version needs {needed}."
        )
    if not as_json:
        output.line(
            f"at revision {needed}" if present == needed else f"from {present or 'empty'} to {needed or 'empty'}"
        )


async def _check(configured: Settings) -> tuple[str | None, str | None]:
    from strata.platform.schema import HEAD_REVISION, current_revision
    from strata.services import open_database

    async with open_database(configured) as database, database.owner() as connection:
        return await current_revision(connection), HEAD_REVISION


async def _migrate(configured: Settings, revision: str) -> tuple[str | None, str | None]:
    from strata.platform.migrations import migrate
    from strata.services import open_database

    async with open_database(configured) as database:
        return await migrate(database.dsn, revision)
