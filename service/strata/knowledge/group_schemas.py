"""The wire of groups (snake_case). Lists are never null."""

from __future__ import annotations

from msgspec import Struct


class GroupOut(Struct, frozen=True, kw_only=True):
    """A group; ``fingerprint`` moves with every change of a context that it reaches."""

    name: str
    description: str
    contexts: list[str]
    groups: list[str]
    fingerprint: str


class GroupPage(Struct, frozen=True, kw_only=True):
    """Groups by name."""

    total: int
    groups: list[GroupOut]
