"""Identifiers: UUIDv7, so that ids made later sort later; and how the id of a passage is made up."""

from __future__ import annotations

from uuid import UUID

import uuid_utils

DEFAULT_TENANT = UUID("00000000-0000-0000-0000-000000000001")
"""The one tenant that exists before keys and tokens name others; the first migration inserts it."""

SERIAL_BITS = 20
"""A passage id is the serial of its source shifted by this much, plus its ordinal."""

ORDINALS = (1 << SERIAL_BITS) - 1
"""The bits of a passage id that hold its ordinal."""


def new_id() -> UUID:
    """Return a new UUIDv7 (RFC 9562)."""
    return UUID(int=uuid_utils.uuid7().int)
