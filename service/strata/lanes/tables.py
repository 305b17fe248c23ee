"""The lexical index: immutable posting segments (docs/adr/0003); and the vectors of passages."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from pgvector.sqlalchemy import HALFVEC
from sqlalchemy import Column, Identity
from sqlmodel import Field, SQLModel

from strata.platform.tables import bigint, binary, context_foreign_key, created, uuid


class LexicalSegment(SQLModel, table=True):
    """Up to 65,536 passages of one context, in passage id order.

    ``lengths`` holds their token counts (little-endian u16), ``passage_ids`` their ids
    (little-endian i64), ``dead`` one bit a passage (least significant first) or NULL when all
    live. ``version`` moves whenever ``dead`` does; all else never changes.
    """

    __tablename__ = "lexical_segment"
    __table_args__ = (context_foreign_key(),)

    tenant_id: UUID = uuid(primary_key=True)
    context_id: UUID = uuid(primary_key=True)
    segment_id: int = bigint(primary_key=True, server_default=Identity(always=True))
    version: int = bigint(server_default="0")
    analyser: int = bigint()
    passages: int = bigint()
    total_length: int = bigint()
    dead_count: int = bigint(server_default="0")
    min_passage_id: int = bigint()
    max_passage_id: int = bigint()
    lengths: bytes = binary()
    passage_ids: bytes = binary()
    dead: bytes | None = binary(nullable=True)
    created_at: datetime = created()


class LexicalPosting(SQLModel, table=True):
    """Where one term stands in one segment.

    ``term`` is the signed 64-bit BLAKE2b of the analysed token; ``passages`` holds local
    positions (little-endian u16) and ``frequencies`` the counts (u8, capped at 255). The key
    begins with the segment: inserts append, and a merged segment goes as one range. There is no
    foreign key to the segment: it would fire once a row; the repository deletes both together.
    """

    __tablename__ = "lexical_posting"

    tenant_id: UUID = uuid(primary_key=True)
    context_id: UUID = uuid(primary_key=True)
    segment_id: int = bigint(primary_key=True, autoincrement=False)
    term: int = bigint(primary_key=True, autoincrement=False)
    passages: bytes = binary()
    frequencies: bytes = binary()


class PassageVector(SQLModel, table=True):
    """The vector of one passage in one embedding space, as float16.

    Its column has no dimension: spaces differ. A large space has an HNSW index of its own, partial on
    ``space_id``. There is no foreign key to the passage: it would fire once a row; who deletes passages
    deletes their vectors.
    """

    __tablename__ = "passage_vector"

    tenant_id: UUID = uuid(primary_key=True)
    context_id: UUID = uuid(primary_key=True)
    space_id: int = bigint(primary_key=True, autoincrement=False)
    passage_id: int = bigint(primary_key=True, autoincrement=False)
    embedding: str = Field(sa_column=Column(HALFVEC, nullable=False))
