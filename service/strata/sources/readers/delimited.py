"""CSV and TSV: each row a line that names its columns."""

from __future__ import annotations

import csv
import io
import itertools
import re
from collections import Counter
from collections.abc import Iterator, Sequence

from strata.sources.readers.builder import DocumentBuilder
from strata.sources.readers.plain import decode_normalised
from strata.sources.readers.refusal import refuse
from strata.sources.readers.tables import cell_text
from strata.text.document import Document

DELIMITERS = ",;\t|"
MAX_FIELD_CHARS = 16 * 1024 * 1024
ROWS_PER_BLOCK = 20
_SAMPLE_CHARS = 64 * 1024
_MAX_HEADER_CHARS = 80
_NUMBER = re.compile(r"[-+]?[\d.,]*\d%?")


def read_delimited(data: bytes, *, charset: str | None = None, delimiter: str | None = None) -> Document:
    """Read a delimited file; the delimiter is the one that parts the rows most evenly.

    The first row names the columns, unless a number stands in it. Every further row becomes
    ``column: value | column: value``, so that one row read alone makes sense; empty cells are left
    out, cells beyond the header stand without a name. A file of one row is kept as it is.
    """
    text, changes = decode_normalised(data, charset)
    delimiter = delimiter or sniff_delimiter(text)
    rows = _rows(text, delimiter)
    header = next(rows, None)
    if header is None:
        raise refuse("no_text", "The table holds no text.")
    builder = DocumentBuilder()
    builder.changes.update(changes)
    names = header if not any(map(_NUMBER.fullmatch, header)) else []
    if not names:
        rows = itertools.chain([header], rows)
    lines: list[str] = []
    ragged = count = 0
    for row in rows:
        count += 1
        ragged += len(row) != len(header)
        lines.append(_line(names, row))
        if len(lines) == ROWS_PER_BLOCK:
            builder.add("table", "\n".join(lines), separator="\n")
            lines = []
    if not count:
        lines = [" | ".join(cell for cell in header if cell)]
    builder.add("table", "\n".join(lines), separator="\n")
    if ragged:
        builder.warnings.append(f"{ragged} of {count} rows do not have the {len(header)} cells of the header.")
    columns = [name for name in names if name][:100]
    return builder.build(metadata={"columns": columns, "rows": count, "delimiter": delimiter})


def sniff_delimiter(text: str) -> str:
    """Return the delimiter under which most rows of the sample have the same number of cells, above one.

    Comma when none parts the rows. Equal evidence prefers comma, semicolon, tab, pipe, in this order.
    """
    sample = text[:_SAMPLE_CHARS]
    if len(text) > len(sample):
        sample = sample[: sample.rfind("\n") + 1] or sample
    best, best_score = ",", (0.0, 0.0)
    for delimiter in DELIMITERS:
        widths = Counter(len(row) for row in _rows(sample, delimiter))
        parted = {width: rows for width, rows in widths.items() if width > 1}
        if not parted:
            continue
        width, rows = max(parted.items(), key=lambda item: (item[1], item[0]))
        score = (rows / widths.total(), float(width))
        if score > best_score:
            best, best_score = delimiter, score
    return best


def _rows(text: str, delimiter: str) -> Iterator[list[str]]:
    """Yield the rows that hold text, cells on one line each. A stray quote at the end closes there."""
    csv.field_size_limit(MAX_FIELD_CHARS)
    try:
        for row in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=True):
            cells = [cell_text(cell) for cell in row]
            if any(cells):
                yield cells
    except csv.Error as error:
        raise refuse("malformed", f"The table cannot be read: {error}.") from error


def _line(header: Sequence[str], row: Sequence[str]) -> str:
    named = []
    for index, cell in enumerate(row):
        name = header[index] if index < len(header) else ""
        if cell:
            named.append(f"{name[:_MAX_HEADER_CHARS]}: {cell}" if name else cell)
    return " | ".join(named)
