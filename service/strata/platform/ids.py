"""Identifiers: UUIDv7, so that ids made later sort later."""

from __future__ import annotations

from uuid import UUID

import uuid_utils

DEFAULT_TENANT = UUID("00000000-0000-0000-0000-000000000001")
"""The one tenant that exists before keys and tokens name others; the first migration inserts it."""


def new_id() -> UUID:
    """Return a new UUIDv7 (RFC 9562)."""
    return UUID(int=uuid_utils.uuid7().int)
