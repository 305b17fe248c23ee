"""All settings, read once from the environment into one immutable object."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import platformdirs
from msgspec import Meta

from strata.errors import INVALID_SETTING, StrataError

Port = Annotated[int, Meta(ge=0, le=65535)]
Positive = Annotated[int, Meta(ge=1)]
Seconds = Annotated[float, Meta(gt=0)]

SPRING_ALIASES: Mapping[str, str] = {
    "STRATA_DATABASE_URL": "SPRING_DATASOURCE_URL",
    "STRATA_DATABASE_USER": "SPRING_DATASOURCE_USERNAME",
    "STRATA_DATABASE_PASSWORD": "SPRING_DATASOURCE_PASSWORD",
    "STRATA_PORT": "SERVER_PORT",
}


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Every setting is ``STRATA_`` plus the field name in upper case; docs/settings.md lists them.

    A Spring name (``SPRING_DATASOURCE_URL``, jdbc form included) stands in where the Strata name
    is not set. ``database_url`` None means the embedded server in ``home``.
    """

    home: Path
    database_url: str | None = None
    database_user: str | None = None
    database_password: str | None = None
    database_pool_size: Positive = 10
    database_acquire_timeout_seconds: Seconds = 2.0
    database_prepared_statements: bool = True
    statement_timeout_seconds: Seconds = 10.0
    host: str = "127.0.0.1"
    port: Port = 8080
    workers: Positive = 1
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["auto", "console", "json"] = "auto"
    shutdown_delay_seconds: Annotated[float, Meta(ge=0, le=600)] = 0.0
    max_body_bytes: Positive = 64 * 1024 * 1024
    max_body_depth: Positive = 64
    max_request_seconds: Seconds = 30.0
    max_concurrent_lookups: Positive = 64
    preview_chars: Annotated[int, Meta(ge=80, le=4000)] = 600
    content_max_bytes: Positive = 64 * 1024
    source_key_granularity: Literal["section", "source", "passage"] = "section"
    relevance_fit: Path | None = None
    relevance_high: Annotated[float, Meta(ge=0, le=1)] | None = None
    relevance_medium: Annotated[float, Meta(ge=0, le=1)] | None = None
    relevance_floor: Annotated[float, Meta(ge=0, le=1)] | None = None
    candidates_per_lane: Annotated[int, Meta(ge=10, le=1000)] = 48
    trace_query: Literal["text", "hash", "none"] = "text"
    trace_commit: Literal["async", "sync"] = "async"
    trace_grouped: bool = False
    trace_span_text: bool = False
    ingest_workers: Annotated[int, Meta(ge=0, le=64)] = 0
    reader_timeout_seconds: Seconds = 120.0
    reader_memory_bytes: Positive = 2 * 1024 * 1024 * 1024
    max_source_bytes: Positive = 256 * 1024 * 1024
    revisions_kept: Annotated[int, Meta(ge=0, le=1_000_000)] | None = None
    lexical_cache_bytes: Annotated[int, Meta(ge=0)] = 512 * 1024 * 1024
    graph_cache_bytes: Annotated[int, Meta(ge=0)] = 512 * 1024 * 1024
    embeddings: str = "auto"
    embeddings_url: str | None = None
    embeddings_model: str | None = None
    embeddings_api_key: str | None = None
    embeddings_revision: str = ""
    embeddings_dimensions: Annotated[int, Meta(ge=1, le=3072)] | None = None
    embeddings_query_prefix: str = ""
    embeddings_passage_prefix: str = ""
    embeddings_batch: Annotated[int, Meta(ge=1, le=2048)] = 32
    embeddings_concurrency: Annotated[int, Meta(ge=1, le=64)] = 4
    embeddings_timeout_seconds: Seconds = 30.0
    embeddings_query_timeout_seconds: Seconds = 2.0
    embeddings_cache_entries: Annotated[int, Meta(ge=0)] = 4096
    embeddings_workers: Annotated[int, Meta(ge=0, le=64)] = 1
    rerank_url: str | None = None
    rerank_model: str | None = None
    rerank_api_key: str | None = None
    rerank_timeout_seconds: Seconds = 5.0
    second_hop: Literal["auto", "on", "off"] = "auto"
    vector_exact_limit: Annotated[int, Meta(ge=0)] = 10_000
    vector_ef_search: Annotated[int, Meta(ge=10, le=1000)] = 200


def default_home() -> Path:
    """Return where local state lives when ``STRATA_HOME`` is not set.

    Root gets /var/lib/strata: the embedded server runs as another user, which must reach it.
    """
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        return Path("/var/lib/strata")
    return Path(platformdirs.user_data_dir("strata"))


def load_settings(environ: Mapping[str, str] | None = None, **overrides: Any) -> Settings:
    """Read the settings from the environment; ``overrides`` win (the command line's options).

    An empty variable counts as not set. Raises StrataError ``invalid_setting`` naming the variable.
    """
    env = os.environ if environ is None else environ
    values: dict[str, Any] = {}
    for field in Settings.__struct_fields__:
        name = f"STRATA_{field.upper()}"
        value = env.get(name) or env.get(SPRING_ALIASES.get(name, ""))
        if value:
            values[field] = value
    values.update({key: value for key, value in overrides.items() if value is not None})
    values["home"] = Path(values.get("home") or default_home()).expanduser().absolute()
    try:
        return msgspec.convert(values, Settings, strict=False)
    except msgspec.ValidationError as error:
        field = str(error).rpartition("$.")[2].rstrip("`")
        name = f"STRATA_{field.upper()}"
        raise StrataError(INVALID_SETTING, f"{name}: {error}", pointer=name) from error
