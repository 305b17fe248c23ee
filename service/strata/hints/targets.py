"""Where a hint leads: a source path, with ``#anchor`` where one section is meant."""

from __future__ import annotations


def join_target(path: str, anchor: str | None = None) -> str:
    """Write a target; a ``#`` of the path itself is written ``%23``."""
    escaped = path.replace("#", "%23")
    return f"{escaped}#{anchor}" if anchor else escaped


def split_target(target: str) -> tuple[str, str | None]:
    """Return path and anchor of a target, None where it means the whole source."""
    path, _, anchor = target.partition("#")
    return path.replace("%23", "#"), anchor or None
