"""What a reader process and its owner say to each other: msgpack frames behind an 8-byte length."""

from __future__ import annotations

from typing import IO

import msgspec

from strata.sources.readers.refusal import Reason
from strata.text.document import Document

MAX_FRAME_BYTES = 4 * 1024 * 1024 * 1024
_LENGTH_BYTES = 8


class ReadRequest(msgspec.Struct, frozen=True, array_like=True):
    """One file to read within so many seconds of CPU time; its bytes follow in a frame of their own.

    Apart, they are written without being copied, which for a large file would hold the interpreter.
    """

    name: str
    media_type: str | None
    cpu_seconds: int


class ReadReply(msgspec.Struct, frozen=True, array_like=True):
    """The document, or why there is none."""

    document: Document | None
    reason: Reason | None = None
    detail: str = ""


def write_frame(stream: IO[bytes], payload: bytes) -> None:
    """Write one frame and flush it."""
    stream.write(len(payload).to_bytes(_LENGTH_BYTES, "big"))
    stream.write(payload)
    stream.flush()


def read_frame(stream: IO[bytes]) -> bytes | None:
    """Read one frame; None when the stream ends first, ValueError when it is no frame."""
    head = stream.read(_LENGTH_BYTES)
    if len(head) < _LENGTH_BYTES:
        return None
    length = int.from_bytes(head, "big")
    if length > MAX_FRAME_BYTES:
        raise ValueError(f"a frame of {length} bytes is over the limit")
    payload = stream.read(length)
    return payload if len(payload) == length else None
