"""Checks of what the vector lane stands on: the embedder, the search settings, the indexes."""

from __future__ import annotations

from urllib.parse import urlsplit

import asyncpg

from strata.errors import StrataError
from strata.lanes.vector.index_repository import invalid_indexes
from strata.lanes.vector.tuning import search_settings, verify_settings
from strata.platform.doctor_model import Check, Status
from strata.platform.doctor_repository import as_role
from strata.providers.embeddings import e5
from strata.providers.embeddings.embedders import Embedders
from strata.settings import Settings


def embedder(settings: Settings) -> Check:
    """Say which embedder is configured and whether what it needs is here; no endpoint is called."""
    name = "embedder"
    try:
        described = Embedders(settings).describe()
        if described.mode == "none":
            return Check(name, Status.OK, "none configured: lookups match words, not meaning")
        if described.mode == "local":
            e5.find_blob()
    except StrataError as error:
        return Check(name, Status.FAIL, error.detail, error.remedy)
    if described.mode == "endpoint":
        return _endpoint(name, settings)
    dimension = f", {described.space.dimension} dimensions" if described.space else ""
    return Check(name, Status.OK, f"{described.mode}: {described.model}{dimension}, in this process")


def _endpoint(name: str, settings: Settings) -> Check:
    if not (settings.embeddings_url and settings.embeddings_model):
        detail = "an endpoint is configured without its address and model"
        return Check(name, Status.FAIL, detail, "Set STRATA_EMBEDDINGS_URL and STRATA_EMBEDDINGS_MODEL.")
    host = urlsplit(settings.embeddings_url).hostname
    return Check(name, Status.OK, f"endpoint: {settings.embeddings_model} at {host}, not called by this check")


async def searches(connection: asyncpg.Connection, role: str, settings: Settings) -> Check:
    """Set, as the application role, what a vector search runs under, and read it back."""
    name = "vector search"
    try:
        async with as_role(connection, role):
            await verify_settings(connection, settings)
    except StrataError as error:
        return Check(name, Status.FAIL, error.detail, error.remedy)
    took = ", ".join(f"{key} = {value}" for key, value in search_settings(settings).items())
    return Check(name, Status.OK, took)


async def indexes(connection: asyncpg.Connection) -> Check:
    """Look for vector indexes that a failed build left; until they are built anew, every vector is compared."""
    name = "vector indexes"
    invalid = await invalid_indexes(connection)
    if not invalid:
        return Check(name, Status.OK, "none is left half built")
    remedy = "Run `strata embeddings run`, which builds them anew."
    return Check(name, Status.WARN, f"half built: {', '.join(invalid)}", remedy)
