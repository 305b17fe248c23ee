"""A least-recently-used cache bounded by bytes, for what never changes under its key."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Any

_ENTRY_BYTES = 300  # what Python itself needs to keep one small entry


class ByteCache:
    """Entries by key, the longest unused dropped first. Not locked: for use from one event loop.

    An entry larger than the whole bound is not kept. A bound of 0 keeps nothing.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._entries: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()
        self.used_bytes = 0

    def get(self, key: Hashable, default: Any = None) -> Any:
        """Return the entry, and count it as used; ``default`` where there is none."""
        entry = self._entries.get(key)
        if entry is None:
            return default
        self._entries.move_to_end(key)
        return entry[0]

    def put(self, key: Hashable, value: Any, size: int) -> None:
        """Keep an entry of ``size`` bytes, replacing one of the same key."""
        size += _ENTRY_BYTES
        replaced = self._entries.pop(key, None)
        if replaced is not None:
            self.used_bytes -= replaced[1]
        if size > self._max_bytes:
            return
        self._entries[key] = value, size
        self.used_bytes += size
        while self.used_bytes > self._max_bytes:
            _, (_, dropped) = self._entries.popitem(last=False)
            self.used_bytes -= dropped

    def __len__(self) -> int:
        return len(self._entries)
