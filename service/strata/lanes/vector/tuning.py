"""The server settings that a vector search runs under: set for its transaction, and read back at start.

A name that the server does not know is taken in silence until the extension is loaded, and a value that it does not
like is a warning: both would leave searches that return too few rows.
"""

from __future__ import annotations

from collections.abc import Mapping

from strata.lanes.vector import repository
from strata.platform.database import Connection
from strata.settings import Settings

MAX_EF_SEARCH = 1_000
"""What pgvector allows."""

MAX_SCAN_TUPLES = 40_000
SCAN_MEMORY_MULTIPLIER = 8


def search_settings(settings: Settings) -> Mapping[str, str]:
    """Return what :meth:`~strata.platform.database.Database.work` should set for a transaction that searches."""
    return {
        "hnsw.ef_search": str(settings.vector_ef_search),
        "hnsw.iterative_scan": "relaxed_order",
        "hnsw.max_scan_tuples": str(MAX_SCAN_TUPLES),
        "hnsw.scan_mem_multiplier": str(SCAN_MEMORY_MULTIPLIER),
    }


async def verify_settings(connection: Connection, settings: Settings) -> None:
    """Check that the search settings take, inside a transaction, which keeps them.

    Raises ``database_setup`` naming the setting, what was asked and what took.
    """
    await repository.apply_settings(connection, search_settings(settings))
