"""The advisory lock of a context's graph, held to the end of a transaction.

One order for every writer, so that none waits for another in a circle: the context
(:meth:`ContextService.hold`), its graph, its source paths, rows, and last the revision counters.
"""

from __future__ import annotations

import hashlib
from uuid import UUID


def graph_lock_key(context: UUID) -> int:
    """Return the lock of a context's graph: who writes facts, names or aliases holds it."""
    digest = hashlib.blake2b(context.bytes + b"graph", digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)
