"""SQL that writes and deletes sources. Rows go in as columns: COPY is not allowed under row-level security."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from operator import itemgetter
from typing import TypeVar
from uuid import UUID

import msgspec

from strata.platform.database import Connection
from strata.sources.model import Built, Known

# Joins what is an array in its column; normalised text holds no such character.
_SEPARATOR = "\x1f"
_ROWS_PER_INSERT = 2_000
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Placed:
    """A built source with its identity and its serial."""

    source: Built
    source_id: UUID
    serial: int


async def lock_paths(connection: Connection, keys: Sequence[int]) -> None:
    """Hold the advisory locks to the end of the transaction, taken in the order given: sort them."""
    await connection.execute("SELECT pg_advisory_xact_lock(key) FROM unnest($1::bigint[]) AS key", keys)


async def known(connection: Connection, tenant: UUID, context: UUID, paths: Sequence[str]) -> dict[str, Known]:
    """Return what stands under the paths."""
    rows = await connection.fetch(
        "SELECT path, source_id, serial, revision, origin, content_sha256, fingerprint FROM source "
        "WHERE tenant_id = $1 AND context_id = $2 AND path = ANY($3)",
        tenant,
        context,
        paths,
    )
    return {row[0]: Known(*row[1:]) for row in rows}


async def lock_known(connection: Connection, tenant: UUID, context: UUID, paths: Sequence[str]) -> dict[str, Known]:
    """Return what stands under the paths, with the rows locked by id to the end of the transaction."""
    rows = await connection.fetch(
        "SELECT path, source_id, serial, revision, origin, content_sha256, fingerprint FROM source "
        "WHERE tenant_id = $1 AND context_id = $2 AND path = ANY($3) ORDER BY source_id FOR UPDATE",
        tenant,
        context,
        paths,
    )
    return {row[0]: Known(*row[1:]) for row in rows}


async def asserting(connection: Connection, tenant: UUID, context: UUID, paths: Sequence[str]) -> list[str]:
    """Return those of the paths under which facts are asserted, in code point order."""
    rows = await connection.fetch(
        """
        SELECT DISTINCT path COLLATE "C" FROM unnest($3::text[]) AS path WHERE EXISTS (
          SELECT FROM attribution WHERE tenant_id = $1 AND context_id = $2 AND source = path OFFSET 0)
        ORDER BY 1
        """,
        tenant,
        context,
        paths,
    )
    return [row[0] for row in rows]


async def next_serials(connection: Connection, count: int) -> list[int]:
    """Return new serials, rising."""
    rows = await connection.fetch("SELECT nextval('source_serial_seq') FROM generate_series(1, $1)", count)
    return sorted(row[0] for row in rows)


async def set_origins(connection: Connection, tenant: UUID, context: UUID, moved: Iterable[tuple[UUID, str]]) -> None:
    """Say which ingest root found the sources last."""
    pairs = list(moved)
    await connection.execute(
        "UPDATE source SET origin = new.origin FROM unnest($3::uuid[], $4::text[]) AS new (source_id, origin) "
        "WHERE source.tenant_id = $1 AND source.context_id = $2 AND source.source_id = new.source_id",
        tenant,
        context,
        [source for source, _ in pairs],
        [origin for _, origin in pairs],
    )


async def clear(connection: Connection, tenant: UUID, context: UUID, sources: Sequence[UUID]) -> None:
    """Delete text, sections, passages, questions and relations of sources that are about to be written anew."""
    arguments = (tenant, context, sources)
    await connection.execute(
        "DELETE FROM document_relation WHERE tenant_id = $1 AND context_id = $2 AND source_id = ANY($3)", *arguments
    )
    await connection.execute(
        "DELETE FROM passage_question WHERE tenant_id = $1 AND context_id = $2 AND source_id = ANY($3)", *arguments
    )
    await connection.execute(
        "DELETE FROM passage WHERE tenant_id = $1 AND context_id = $2 AND source_id = ANY($3)", *arguments
    )
    await connection.execute(
        "DELETE FROM section WHERE tenant_id = $1 AND context_id = $2 AND source_id = ANY($3)", *arguments
    )
    await connection.execute(
        "DELETE FROM source_content WHERE tenant_id = $1 AND context_id = $2 AND source_id = ANY($3)", *arguments
    )


async def put_sources(connection: Connection, tenant: UUID, context: UUID, placed: Sequence[Placed]) -> dict[UUID, int]:
    """Insert or replace the rows of sources; return the revision that each has now."""
    sources = [item.source for item in placed]
    rows = await connection.fetch(
        """
        INSERT INTO source AS old (
          tenant_id, context_id, source_id, serial, path, origin, title, format, media_type, category, language, tags,
          source_key, source_key_basis, occurred_at, metadata, normalisation, warnings, content_sha256, fingerprint,
          original_bytes, text_bytes, passage_count, updated_at, link_name)
        SELECT $1, $2, new.source_id, serial, path, origin, title, format, media_type, category, language,
          ARRAY(SELECT tag FROM jsonb_array_elements_text(tags::jsonb) WITH ORDINALITY AS of (tag, n) ORDER BY n),
          source_key, source_key_basis, occurred_at, metadata::jsonb,
          normalisation::jsonb, string_to_array(warnings, E'\\x1f'), content_sha256, fingerprint, original_bytes,
          text_bytes, passage_count, coalesce(stored_at, now()),
          lower(regexp_replace(regexp_replace(path, '^.*/', ''), '(?<=.)\\.[^.]*$', '') COLLATE "default")
        FROM unnest($3::uuid[], $4::bigint[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[], $10::text[],
          $11::text[], $12::text[], $13::text[], $14::text[], $15::timestamptz[], $16::text[], $17::text[],
          $18::text[], $19::bytea[], $20::bytea[], $21::bigint[], $22::bigint[], $23::bigint[],
          $24::timestamptz[])
        AS new (source_id, serial, path, origin, title, format, media_type, category, language, tags, source_key,
          source_key_basis, occurred_at, metadata, normalisation, warnings, content_sha256, fingerprint,
          original_bytes, text_bytes, passage_count, stored_at)
        ON CONFLICT (tenant_id, context_id, source_id) DO UPDATE SET
          serial = excluded.serial, revision = old.revision + 1, origin = excluded.origin, title = excluded.title,
          format = excluded.format, media_type = excluded.media_type, category = excluded.category,
          language = excluded.language, tags = excluded.tags, source_key = excluded.source_key,
          source_key_basis = excluded.source_key_basis, occurred_at = excluded.occurred_at,
          metadata = excluded.metadata, normalisation = excluded.normalisation, warnings = excluded.warnings,
          content_sha256 = excluded.content_sha256, fingerprint = excluded.fingerprint,
          original_bytes = excluded.original_bytes, text_bytes = excluded.text_bytes,
          passage_count = excluded.passage_count, updated_at = excluded.updated_at, link_name = excluded.link_name
        RETURNING source_id, revision
        """,
        tenant,
        context,
        [item.source_id for item in placed],
        [item.serial for item in placed],
        [source.path for source in sources],
        [source.origin for source in sources],
        [source.title for source in sources],
        [source.format for source in sources],
        [source.media_type for source in sources],
        [source.category for source in sources],
        [source.language for source in sources],
        [msgspec.json.encode(source.tags).decode() for source in sources],
        [source.source_key for source in sources],
        [source.source_key_basis for source in sources],
        [source.occurred_at for source in sources],
        [msgspec.json.encode(source.metadata).decode() for source in sources],
        [msgspec.json.encode(source.normalisation).decode() for source in sources],
        [_SEPARATOR.join(source.warnings) for source in sources],
        [source.content_sha256 for source in sources],
        [source.fingerprint for source in sources],
        [source.size for source in sources],
        [len(source.content) for source in sources],
        [len(source.passages) for source in sources],
        [source.stored_at for source in sources],
    )
    return {row[0]: row[1] for row in rows}


async def insert_content(connection: Connection, tenant: UUID, context: UUID, placed: Sequence[Placed]) -> None:
    """Store the texts."""
    await connection.execute(
        "INSERT INTO source_content (tenant_id, context_id, source_id, content) "
        "SELECT $1, $2, source_id, content FROM unnest($3::uuid[], $4::bytea[]) AS new (source_id, content)",
        tenant,
        context,
        [item.source_id for item in placed],
        [item.source.content for item in placed],
    )


async def insert_sections(connection: Connection, tenant: UUID, context: UUID, placed: Sequence[Placed]) -> None:
    """Store the sections."""
    for rows in _slices((item.source_id, section) for item in placed for section in item.source.sections):
        await connection.execute(
            """
            INSERT INTO section (
              tenant_id, context_id, source_id, ordinal, level, heading, anchor, breadcrumb, start_byte, end_byte)
            SELECT $1, $2, source_id, ordinal, level, heading, anchor, string_to_array(breadcrumb, E'\x1f'),
              start_byte, end_byte
            FROM unnest($3::uuid[], $4::bigint[], $5::bigint[], $6::text[], $7::text[], $8::text[], $9::bigint[],
              $10::bigint[])
            AS new (source_id, ordinal, level, heading, anchor, breadcrumb, start_byte, end_byte)
            """,
            tenant,
            context,
            [source_id for source_id, _ in rows],
            [section.ordinal for _, section in rows],
            [section.level for _, section in rows],
            [section.heading for _, section in rows],
            [section.anchor for _, section in rows],
            [_SEPARATOR.join(section.breadcrumb) for _, section in rows],
            [section.start_byte for _, section in rows],
            [section.end_byte for _, section in rows],
        )


async def insert_passages(
    connection: Connection, tenant: UUID, context: UUID, placed: Sequence[Placed], serial_bits: int
) -> None:
    """Store the passages under ids made of serial and ordinal."""
    for rows in _slices(
        (item, passage, digest)
        for item in placed
        for passage, digest in zip(item.source.passages, item.source.passage_sha256, strict=True)
    ):
        await connection.execute(
            """
            INSERT INTO passage (
              tenant_id, context_id, passage_id, source_id, section_ordinal, kind, start_byte, end_byte, sha256, page,
              start_ms, end_ms, speaker, locator_kind, locator_value)
            SELECT $1, $2, passage_id, source_id, section_ordinal, kind, start_byte, end_byte, sha256, page,
              start_ms, end_ms, speaker, locator_kind, locator_value
            FROM unnest($3::bigint[], $4::uuid[], $5::bigint[], $6::text[], $7::bigint[], $8::bigint[], $9::bytea[],
              $10::bigint[], $11::bigint[], $12::bigint[], $13::text[], $14::text[], $15::text[])
            AS new (passage_id, source_id, section_ordinal, kind, start_byte, end_byte, sha256, page, start_ms, end_ms,
              speaker, locator_kind, locator_value)
            """,
            tenant,
            context,
            [item.serial << serial_bits | passage.ordinal for item, passage, _ in rows],
            [item.source_id for item, _, _ in rows],
            [passage.section for _, passage, _ in rows],
            [passage.kind for _, passage, _ in rows],
            [passage.start_byte for _, passage, _ in rows],
            [passage.end_byte for _, passage, _ in rows],
            [digest for _, _, digest in rows],
            [passage.page for _, passage, _ in rows],
            [passage.start_ms for _, passage, _ in rows],
            [passage.end_ms for _, passage, _ in rows],
            [passage.speaker for _, passage, _ in rows],
            [at.kind if (at := item.source.locators.get(passage.ordinal)) else None for item, passage, _ in rows],
            [at.value if (at := item.source.locators.get(passage.ordinal)) else None for item, passage, _ in rows],
        )


async def insert_questions(connection: Connection, tenant: UUID, context: UUID, placed: Sequence[Placed]) -> None:
    """Store the questions that passages answer, numbered within each passage."""
    for rows in _slices(
        (item.source_id, passage, number, question)
        for item in placed
        for passage, group in groupby(item.source.questions, key=itemgetter(0))
        for number, (_, question) in enumerate(group)
    ):
        await connection.execute(
            """
            INSERT INTO passage_question (tenant_id, context_id, source_id, paragraph, ordinal, question)
            SELECT $1, $2, * FROM unnest($3::uuid[], $4::bigint[], $5::bigint[], $6::text[])
            """,
            tenant,
            context,
            *(list(column) for column in zip(*rows, strict=True)),
        )


async def insert_relations(connection: Connection, tenant: UUID, context: UUID, placed: Sequence[Placed]) -> None:
    """Store the relations, numbered in their order; names in the lower case that ``source.link_name`` has."""
    for rows in _slices(
        (item.source_id, number, relation) for item in placed for number, relation in enumerate(item.source.relations)
    ):
        await connection.execute(
            """
            INSERT INTO document_relation (
              tenant_id, context_id, source_id, ordinal, predicate, form, target, written, anchor, label,
              section_ordinal, count)
            SELECT $1, $2, source_id, ordinal, predicate, form,
              CASE form WHEN 'name' THEN lower(target COLLATE "default") ELSE target END,
              written, anchor, label, section_ordinal, count
            FROM unnest($3::uuid[], $4::bigint[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[],
              $10::text[], $11::bigint[], $12::bigint[])
            AS new (source_id, ordinal, predicate, form, target, written, anchor, label, section_ordinal, count)
            """,
            tenant,
            context,
            [source_id for source_id, _, _ in rows],
            [number for _, number, _ in rows],
            [relation.predicate for _, _, relation in rows],
            [relation.form for _, _, relation in rows],
            [relation.target for _, _, relation in rows],
            [relation.written for _, _, relation in rows],
            [relation.anchor for _, _, relation in rows],
            [relation.label for _, _, relation in rows],
            [relation.section for _, _, relation in rows],
            [relation.count for _, _, relation in rows],
        )


def _slices(rows: Iterable[T]) -> Iterator[list[T]]:
    """Cut rows so that preparing one statement does not hold the event loop for long."""
    remaining = iter(rows)
    while part := list(islice(remaining, _ROWS_PER_INSERT)):
        yield part


async def delete_sources(connection: Connection, tenant: UUID, context: UUID, sources: Sequence[UUID]) -> int:
    """Delete sources with all that hangs on them; return how many there were."""
    rows = await connection.fetch(
        "DELETE FROM source WHERE tenant_id = $1 AND context_id = $2 AND source_id = ANY($3) RETURNING source_id",
        tenant,
        context,
        sources,
    )
    return len(rows)


async def analyse(connection: Connection) -> None:
    """Refresh the planner's statistics of the tables that others refer to."""
    await connection.execute(
        "ANALYZE source, document_relation, passage, hint_entry, hint_key, concept, label, association"
    )
