"""Read import streams: every line is checked before anything of a run is applied."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any, cast

from strata.errors import INVALID_REQUEST, StrataError
from strata.exchange.fields import Fields, Refused, shown
from strata.exchange.jsonline import read_object
from strata.exchange.operations import OPERATIONS, Builder
from strata.exchange.records import MAX_LINE_BYTES, Form, GroupRecord, SchemaRecord, SourceBatch, Stream
from strata.exchange.stream_records import HEADERS, Header, typed_header

_BOM = b"\xef\xbb\xbf"
_DEFAULT_ADVICE = "Correct this line and send the stream again; nothing was written."


def parse_stream(data: bytes, *, name: str | None = None) -> Stream:
    """Read one stream, or raise ``invalid_request`` with the number of the first line that is wrong.

    ``name`` stands before the line number in messages. The detail of an error begins with
    ``line N: `` (``name: line N: ``); ``extra`` holds ``line``, ``file`` where there is a name, and
    ``issue`` with path, kind, expected and actual. What to do is the remedy.
    """
    run = _Run()
    run.read(data, name)
    return run.stream()


def parse_streams(files: Iterable[tuple[str, bytes]]) -> Stream:
    """Read several streams as one run, in the order given; what may stand once may stand in one of them only.

    No files at all, like an empty file, are refused.
    """
    run = _Run()
    for name, data in files:
        run.read(data, name)
    if not run.is_started:
        raise _error(_empty(), None, 1)
    return run.stream()


@dataclass(slots=True)
class _Run:
    """What the streams read so far hold, and where each thing that may stand once was seen."""

    sources: list[SourceBatch] = field(default_factory=list)
    schemas: list[SchemaRecord] = field(default_factory=list)
    groups: list[GroupRecord] = field(default_factory=list)
    seen: dict[tuple[str, ...], str] = field(default_factory=dict)
    is_started: bool = False

    def stream(self) -> Stream:
        return Stream(sources=tuple(self.sources), schemas=tuple(self.schemas), groups=tuple(self.groups))

    def read(self, data: bytes, file: str | None) -> None:
        self.is_started = True
        reader = _Reader(self, file)
        number = 0
        start = len(_BOM) if data.startswith(_BOM) else 0
        lines = BytesIO(data)
        lines.seek(start)
        try:
            for number, raw in enumerate(lines, 1):
                reader.line(raw, number)
            reader.close()
            if not reader.holds_record:
                raise _empty()
        except Refused as refused:
            raise _error(refused, file, refused.line or max(number, 1)) from None

    def once(self, kind: str, key: tuple[str, ...], what: str, file: str | None, line: int) -> None:
        if first := self.seen.get((kind, *key)):
            raise Refused(
                "",
                "conflict",
                f"each {kind} once",
                f"{what} a second time, after {first}",
                "Keep one of the two.",
                line=line,
            )
        self.seen[(kind, *key)] = f"line {line}" if file is None else f"{file} line {line}"


class _Reader:
    """One stream: the source that is open, and what closes it."""

    def __init__(self, run: _Run, file: str | None) -> None:
        self.run = run
        self.file = file
        self.open: Builder | None = None
        self.holds_record = False

    def line(self, raw: bytes, number: int) -> None:
        if len(raw) > MAX_LINE_BYTES and len(raw.rstrip(b"\r\n")) > MAX_LINE_BYTES:
            raise Refused(
                "", "too_long", f"at most {MAX_LINE_BYTES:,} bytes a line", f"{len(raw):,} bytes", "Split the line."
            )
        fields = read_object(raw)
        if fields is None:
            return
        for key, operation in OPERATIONS:
            if key in fields:
                operation(self._open_source(), fields, number)
                return
        self.record(fields, number)

    def _open_source(self) -> Builder:
        if self.open is not None:
            return self.open
        if self.holds_record:
            raise Refused(
                "",
                "missing",
                "an open source",
                "a schema or group record before this line",
                "Repeat the header of a source before it.",
            )
        raise Refused(
            "", "missing", "the header of a source", "a line before any header", "Begin with the header of a source."
        )

    def record(self, fields: dict[str, Any], number: int) -> None:
        header = next((header for key, header in HEADERS if key in fields), None) or typed_header(fields)
        self.close()
        self.holds_record = True
        _READ[header.kind](self, header, fields, number)

    def source(self, header: Header, fields: Fields, number: int) -> None:
        batch = cast("SourceBatch", header.read(fields, self.file, number))
        key = (context_key(batch.context, batch.form), batch.source)
        self.run.once("source", key, f"the source {shown(batch.source)} of this context", self.file, number)
        self.open = Builder(batch)

    def schema(self, header: Header, fields: Fields, number: int) -> None:
        record = cast("SchemaRecord", header.read(fields, self.file, number))
        key = (context_key(record.context, record.form),)
        self.run.once("schema", key, f"the schema of {shown(record.context)}", self.file, number)
        self.run.schemas.append(record)

    def group(self, header: Header, fields: Fields, number: int) -> None:
        record = cast("GroupRecord", header.read(fields, self.file, number))
        self.run.once(
            "group", (context_key(record.name, Form.NAME),), f"the group {shown(record.name)}", self.file, number
        )
        self.run.groups.append(record)

    def close(self) -> None:
        """Check the open source as a whole and keep it."""
        if self.open is not None:
            self.run.sources.append(self.open.finish())
            self.open = None


_READ = {"source": _Reader.source, "schema": _Reader.schema, "group": _Reader.group}


def context_key(context: str, form: Form) -> str:
    """Return the one spelling under which a reference to a context is compared: NFC, trimmed."""
    return context if form is Form.ID else unicodedata.normalize("NFC", context.strip())


def _empty() -> Refused:
    return Refused(
        "", "empty", "at least one record", "a stream without any", "Begin with the header of a source.", line=1
    )


def _error(refused: Refused, file: str | None, line: int) -> StrataError:
    where = f"line {line}: " if file is None else f"{file}: line {line}: "
    subject = f"{refused.path}: " if refused.path else ""
    issue = {
        "path": refused.path or "line",
        "kind": refused.kind,
        "expected": refused.expected,
        "actual": refused.actual,
    }
    extra: dict[str, Any] = {"line": line, "issue": issue}
    if file is not None:
        extra["file"] = file
    return StrataError(
        INVALID_REQUEST,
        f"{where}{subject}expected {refused.expected}, found {refused.actual}.",
        remedy=refused.advice or _DEFAULT_ADVICE,
        extra=extra,
    )
