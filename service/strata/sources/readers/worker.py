"""The reader process: ``python -m strata.sources.readers.worker MEMORY_BYTES``.

Reads requests from standard input and writes replies to standard output until the input ends.
"""

from __future__ import annotations

import contextlib
import os
import resource
import sys
from typing import BinaryIO

import msgspec

from strata.errors import StrataError
from strata.sources.readers import read_document
from strata.sources.readers.wire import ReadReply, ReadRequest, read_frame, write_frame


def main() -> None:
    """Serve requests until standard input ends; leave after a reading that ran out of memory."""
    # The replies' own descriptor: a library that prints must not write into the frames.
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_AS, int(sys.argv[1]))
    decoder = msgspec.msgpack.Decoder(ReadRequest)
    try:
        while (frame := read_frame(sys.stdin.buffer)) is not None:
            data = read_frame(sys.stdin.buffer)
            if data is None:
                return
            _serve(decoder.decode(frame), data, replies)
            del data
    except MemoryError:
        write_frame(replies, msgspec.msgpack.encode(ReadReply(None, "memory", "Reading it takes too much memory.")))


def _serve(request: ReadRequest, data: bytes, replies: BinaryIO) -> None:
    used = resource.getrusage(resource.RUSAGE_SELF)
    _limit(resource.RLIMIT_CPU, int(used.ru_utime + used.ru_stime) + request.cpu_seconds, soft_only=True)
    write_frame(replies, msgspec.msgpack.encode(_read(request, data)))


def _read(request: ReadRequest, data: bytes) -> ReadReply:
    try:
        return ReadReply(read_document(request.name, data, request.media_type))
    except StrataError as error:
        return ReadReply(None, error.extra.get("reason", "malformed"), error.detail)
    except MemoryError:
        raise
    except RecursionError:
        return ReadReply(None, "malformed", "The document is nested too deeply.")
    except Exception as error:  # noqa: BLE001  whatever a library makes of a hostile file, the next one is read
        return ReadReply(None, "crashed", f"The reader failed on it ({type(error).__name__}).")


def _limit(kind: int, value: int, *, soft_only: bool = False) -> None:
    """Set a resource limit; systems that lack it, or hold it lower, keep their own."""
    _, hard = resource.getrlimit(kind)
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(kind, (value, hard if soft_only else value))


if __name__ == "__main__":
    main()
