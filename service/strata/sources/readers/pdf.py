"""PDF: text page by page, lines joined to paragraphs, headings from the outline."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from strata.sources.readers.builder import DocumentBuilder
from strata.sources.readers.pdf_lines import Line, RunningLines, page_blocks, page_lines, usual_spacing
from strata.sources.readers.refusal import refuse
from strata.text.document import Document
from strata.text.paragraphs import collapse_spaces

MAX_PAGES = 50_000
MAX_OUTLINE_ENTRIES = 20_000
MAX_OUTLINE_DEPTH = 6

_PASSWORD_ERROR = 4
_FILE_LIKE = re.compile(
    r"\(?(?:untitled|anonymous|unspecified)\)?|powerpoint presentation|microsoft \w+ - .*"
    r"|.*\.(?:docx?|tex|dvi|indd|pdf|qxd|pptx?|html?|rtf|odt)",
    re.IGNORECASE,
)
_DATE = re.compile(r"(?:D:)?(\d{4})(\d\d)?(\d\d)?(?:(\d\d)(\d\d)?(\d\d)?)?(?:([Zz+-])(?:(\d\d)'?(\d\d)?'?)?)?$")
_NUMBER_PREFIX = re.compile(r"^(?:[\dA-Z]{1,3}\.)*[\dIVX]{0,4}[.)]?\s+")


@dataclass(frozen=True, slots=True)
class _OutlineEntry:
    level: int
    title: str
    page: int


def read_pdf(data: bytes) -> Document:
    """Read a PDF; each block knows its page, counted from 1.

    One that opens with the empty password is read, one that does not is refused as ``encrypted``. An
    outline entry becomes a heading where its page shows its title as a line. Running heads and page
    numbers are kept once. A file of pictures is refused as ``no_text``; pages without text are named
    in a warning.
    """
    import pypdfium2

    try:
        pdf = pypdfium2.PdfDocument(data)
    except pypdfium2.PdfiumError as error:
        if getattr(error, "err_code", None) == _PASSWORD_ERROR:
            raise refuse("encrypted", "The PDF is protected by a password.") from error
        raise refuse("malformed", "The PDF is damaged and cannot be opened.") from error
    try:
        return _read(pdf)
    finally:
        pdf.close()


def _read(pdf: Any) -> Document:
    pages = len(pdf)
    if pages > MAX_PAGES:
        raise refuse("too_large", f"The PDF has {pages} pages; {MAX_PAGES} are read.")
    builder = DocumentBuilder()
    outline = _outline(pdf)
    empty: list[int] = []
    damaged: list[int] = []
    running = RunningLines()
    for index in range(pages):
        before = len(builder)
        entries = outline.get(index, [])
        titles = {_comparable(entry.title) for entry in entries}
        lines = _lines(pdf, index, damaged)
        lines = running.without(lines, index, partial(_is_title, titles))
        _add_page(builder, lines, entries, index + 1)
        if len(builder) == before:
            empty.append(index + 1)
    if not len(builder):
        reason = "The PDF holds no text, only pictures." if not damaged else "No page of the PDF can be read."
        raise refuse("malformed" if damaged else "no_text", reason)
    builder.warnings.extend(_page_warnings(empty, damaged))
    metadata = _metadata(pdf, pages)
    title = str(metadata.get("title", ""))
    return builder.build(title="" if _FILE_LIKE.fullmatch(title) else title, metadata=metadata)


def _is_title(titles: set[str], line: Line) -> bool:
    return _comparable(line.text) in titles


def _page_warnings(empty: Sequence[int], damaged: Sequence[int]) -> Iterator[str]:
    if damaged:
        yield f"{len(damaged)} pages are damaged and were left out: {_some(damaged)}."
    if empty := [page for page in empty if page not in set(damaged)]:
        yield f"{len(empty)} pages hold no text: {_some(empty)}."


def _some(pages: Sequence[int]) -> str:
    shown = ", ".join(map(str, pages[:20]))
    return f"{shown} and more" if len(pages) > 20 else shown


def _lines(pdf: Any, index: int, damaged: list[int]) -> list[Line]:
    import pypdfium2

    try:
        page = pdf[index]
        try:
            text_page = page.get_textpage()
            try:
                return page_lines(text_page)
            finally:
                text_page.close()
        finally:
            page.close()
    except pypdfium2.PdfiumError:
        damaged.append(index + 1)
        return []


def _add_page(builder: DocumentBuilder, lines: list[Line], entries: Sequence[_OutlineEntry], page: int) -> None:
    """Add a page's blocks, parted at the lines that the outline names as headings."""
    start = 0
    spans = _heading_spans(lines, entries)
    usual = usual_spacing(lines)
    for first, last, entry in spans:
        for text in page_blocks(lines[start:first], usual):
            builder.add("paragraph", text, page=page)
        title = " ".join(line.text for line in lines[first:last])
        builder.add("heading", collapse_spaces(title), level=entry.level, page=page)
        start = last
    for text in page_blocks(lines[start:], usual):
        builder.add("paragraph", text, page=page)


def _heading_spans(lines: Sequence[Line], entries: Sequence[_OutlineEntry]) -> list[tuple[int, int, _OutlineEntry]]:
    """Return the lines (first, end) that show each entry's title, in page order; an entry not shown is dropped."""
    found: list[tuple[int, int, _OutlineEntry]] = []
    start = 0
    for entry in entries:
        wanted = _comparable(entry.title)
        for first in range(start, len(lines)):
            if last := _matches(lines, first, wanted):
                found.append((first, last, entry))
                start = last
                break
    return found


def _matches(lines: Sequence[Line], first: int, wanted: str) -> int:
    """Return the end of up to three lines that together are the wanted title, 0 when they are not."""
    joined = ""
    for last in range(first, min(first + 3, len(lines))):
        joined += _comparable(lines[last].text, number=last > first)
        if joined == wanted:
            return last + 1
        if not wanted.startswith(joined):
            return 0
    return 0


def _comparable(title: str, *, number: bool = False) -> str:
    text = title.strip() if number else _NUMBER_PREFIX.sub("", title.strip())
    return "".join(char for char in (text or title).casefold() if char.isalnum())


def _outline(pdf: Any) -> dict[int, list[_OutlineEntry]]:
    """Return the outline's entries by page index; a cyclic or damaged outline gives what was read of it."""
    import pypdfium2

    entries: dict[int, list[_OutlineEntry]] = {}
    try:
        for count, bookmark in enumerate(pdf.get_toc(max_depth=MAX_OUTLINE_DEPTH)):
            if count >= MAX_OUTLINE_ENTRIES:
                break
            destination = bookmark.get_dest()
            index = destination.get_index() if destination else None
            title = collapse_spaces(bookmark.get_title() or "")
            if index is not None and title and _comparable(title):
                entries.setdefault(index, []).append(_OutlineEntry(bookmark.level + 1, title, index))
    except (pypdfium2.PdfiumError, UnicodeError, ValueError):
        return entries
    return entries


def _metadata(pdf: Any, pages: int) -> dict[str, object]:
    values: dict[str, object] = {"pages": pages}
    for name in ("Title", "Author", "Subject", "Keywords", "CreationDate", "ModDate"):
        value = collapse_spaces(pdf.get_metadata_value(name) or "").replace("\x00", "")
        if value:
            key = {"CreationDate": "created", "ModDate": "modified"}.get(name)
            values[key or name.lower()] = _iso_date(value) if key else value
    return values


def _iso_date(value: str) -> str:
    """Turn a PDF date (D:20240822125427+02'00') into an ISO one; one of another form stays as it is."""
    match = _DATE.match(value)
    if not match:
        return value
    year, month, day, hour, minute, second, zone, zone_hour, zone_minute = match.groups()
    date = "-".join(part for part in (year, month, day) if part)
    if not hour or not minute:
        return date
    offset = "Z" if zone == "Z" else f"{zone}{zone_hour}:{zone_minute or '00'}" if zone and zone_hour else ""
    return f"{date}T{hour}:{minute}:{second or '00'}{offset}"
