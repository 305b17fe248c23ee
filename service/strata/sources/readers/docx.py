"""DOCX: headings by style, lists, tables and text boxes in document order."""

from __future__ import annotations

import io
import re
import zipfile
import zlib
from collections.abc import Iterator
from typing import Any

import docx
from docx.opc.exceptions import OpcError
from lxml.etree import LxmlError

from strata.sources.readers.builder import DocumentBuilder
from strata.sources.readers.refusal import refuse
from strata.sources.readers.tables import Cell, cell_text, expand_spans, render_rows
from strata.text.document import BlockKind, Document

MAX_UNPACKED_BYTES = 512 * 1024 * 1024
MAX_PARTS = 10_000

_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_M = "{http://schemas.openxmlformats.org/officeDocument/2006/math}"
_MC = "{http://schemas.openxmlformats.org/markup-compatibility/2006}"
_STRICT = re.compile(rb"http://purl\.oclc\.org/ooxml/(\w+)/([\w/]+)")
_ENCRYPTED = "EncryptedPackage".encode("utf-16-le")
# Deleted, moved-away and reference text: the reader of the final document does not see it.
_UNSEEN = frozenset(
    f"{_W}{name}" for name in ("del", "moveFrom", "instrText", "delText", "rt", "rPr", "pPr", "fldData", "sdtPr")
)
_BOX = f"{_W}txbxContent"
_HEADING = re.compile(r"heading ([1-9])", re.IGNORECASE)
_CODE_STYLE = re.compile(r"code|preformatted|source|listing|macro", re.IGNORECASE)
# What the archive and document libraries raise on a damaged file.
_DAMAGE = (
    zipfile.BadZipFile, zipfile.LargeZipFile, zlib.error, OpcError, LxmlError, NotImplementedError, EOFError, OSError,
    ValueError, LookupError, AttributeError, TypeError, AssertionError,
)  # fmt: skip
_PROPERTIES = ("author", "subject", "keywords", "category", "comments", "created", "modified", "language")


def read_docx(data: bytes) -> Document:
    """Read a Word document, strict Office Open XML included.

    Merged cells appear once; a table of one cell is read as the text in it. Headers, footers,
    comments and deleted text are left out, footnotes come last. Refuses ``encrypted``,
    ``malformed`` and ``too_large`` (over 512 MiB unpacked) files.
    """
    if data.startswith(b"\xd0\xcf\x11\xe0"):
        if _ENCRYPTED in data:
            raise refuse("encrypted", "The document is protected by a password.")
        raise refuse("unsupported_format", "Files in the old Word format are not read.")
    try:
        return _read(_checked(data))
    except _DAMAGE as error:
        raise refuse("malformed", f"The document is damaged ({type(error).__name__}).") from error


def _read(data: bytes) -> Document:
    package = docx.Document(io.BytesIO(data))
    walk = _DocxWalk(package)
    walk.read(package.element.body)
    walk.read_notes()
    if not len(walk.builder):
        raise refuse("no_text", "The document holds no text.")
    properties = package.core_properties
    metadata = {name: value for name in _PROPERTIES if (value := getattr(properties, name, None))}
    # The library invents this title where the document has no properties.
    title = "" if properties.title == "Word Document" else properties.title
    return walk.builder.build(title=title or walk.title, metadata=metadata, language=properties.language or None)


def _checked(data: bytes) -> bytes:
    """Return the package, rewritten to transitional namespaces when it is strict; refuse bombs and bad archives."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        parts = archive.infolist()
        if len(parts) > MAX_PARTS or sum(part.file_size for part in parts) > MAX_UNPACKED_BYTES:
            raise refuse("too_large", f"The document unpacks to more than {MAX_UNPACKED_BYTES} bytes.")
        if any(part.flag_bits & 1 for part in parts):
            raise refuse("encrypted", "The document is protected by a password.")
        names = {part.filename for part in parts}
        if "[Content_Types].xml" not in names:
            raise refuse("unsupported_format", "The archive is not a Word document.")
        head = archive.read("_rels/.rels") if "_rels/.rels" in names else b""
        return _to_transitional(archive) if b"purl.oclc.org/ooxml" in head else data


def _to_transitional(archive: zipfile.ZipFile) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as rewritten:
        for part in archive.infolist():
            content = archive.read(part)
            if part.filename.endswith((".xml", ".rels")):
                content = _STRICT.sub(rb"http://schemas.openxmlformats.org/\1/2006/\2", content)
            rewritten.writestr(part.filename, content)
    return target.getvalue()


class _DocxWalk:
    """Turns the body's elements into blocks."""

    def __init__(self, package: Any) -> None:
        self.builder = DocumentBuilder()
        self.title = ""
        self._package = package
        self._styles = {style.style_id: style for style in package.styles if hasattr(style, "style_id")}
        self._style_cache: dict[str | None, tuple[str, int, bool]] = {}
        self._run_kind: BlockKind | None = None
        self._run: list[str] = []

    def read(self, body: Any) -> None:
        """Read the blocks of a body, text box or cell."""
        for element in _block_elements(body):
            if element.tag == f"{_W}tbl":
                self._table(element)
            else:
                self._paragraph(element)
        self._end_run()

    def read_notes(self) -> None:
        """Read the footnotes and endnotes."""
        from lxml import etree

        parser = etree.XMLParser(resolve_entities=False, no_network=True)
        for relation in self._package.part.rels.values():
            if relation.is_external or not relation.reltype.endswith(("/footnotes", "/endnotes")):
                continue
            try:
                root = etree.fromstring(relation.target_part.blob, parser)
            except etree.XMLSyntaxError:
                self.builder.warnings.append("The notes are damaged and were left out.")
                continue
            for note in root:
                if note.get(f"{_W}type") in {None, "normal"}:
                    self.read(note)

    def _paragraph(self, element: Any) -> None:
        boxes: list[Any] = []
        text = _text(element, boxes)
        name, level, in_list = self._style(element)
        if name.casefold() == "title" and text.strip() and not self.title:
            self.title = cell_text(text)
            level = 1
        elif level and self.title:
            level = min(6, level + 1)
        indent, numbered = _numbering(element)
        if level:
            self._end_run()
            self.builder.add("heading", cell_text(text), level=level)
        elif (numbered or in_list) and text.strip():
            self._add_run("list", "  " * indent + "- " + cell_text(text))
        elif _CODE_STYLE.search(name):
            self._add_run("code", text)
        elif text.strip():
            self._end_run()
            quote = "quote" in name.casefold()
            self.builder.add("quote" if quote else "paragraph", text)
        for box in boxes:
            self.read(box)

    def _add_run(self, kind: BlockKind, line: str) -> None:
        """Collect lines of a list or of code that follow each other into one block."""
        if self._run_kind != kind:
            self._end_run()
        self._run_kind = kind
        self._run.append(line)

    def _end_run(self) -> None:
        if self._run_kind:
            self.builder.add(self._run_kind, "\n".join(self._run))
        self._run_kind, self._run = None, []

    def _table(self, element: Any) -> None:
        self._end_run()
        rows = [list(_children(row, f"{_W}tc")) for row in _children(element, f"{_W}tr")]
        if len(rows) == 1 and len(rows[0]) == 1:
            self.read(rows[0][0])
            return
        grid = [_row(row) for row in _children(element, f"{_W}tr")]
        self.builder.add("table", render_rows(expand_spans(grid)))

    def _style(self, element: Any) -> tuple[str, int, bool]:
        """Return the name, heading level (0 for none) and list membership that a paragraph's style gives."""
        found = element.find(f"{_W}pPr/{_W}pStyle")
        identifier = found.get(f"{_W}val") if found is not None else None
        if identifier not in self._style_cache:
            self._style_cache[identifier] = self._resolve(identifier)
        name, level, in_list = self._style_cache[identifier]
        outline = element.find(f"{_W}pPr/{_W}outlineLvl")
        if not level and outline is not None:
            level = _outline_level(outline)
        return name, level, in_list

    def _resolve(self, identifier: str | None) -> tuple[str, int, bool]:
        style = self._styles.get(identifier)
        name = (style.name or "") if style is not None else ""
        level, in_list = 0, name.casefold().startswith("list ")
        seen: set[int] = set()
        while style is not None and id(style.element) not in seen:
            seen.add(id(style.element))
            if match := _HEADING.fullmatch(style.name or ""):
                level = min(6, int(match[1]))
                break
            outline = style.element.find(f"{_W}pPr/{_W}outlineLvl")
            if outline is not None and (level := _outline_level(outline)):
                break
            style = style.base_style
        return name, level, in_list


def _block_elements(parent: Any) -> Iterator[Any]:
    """Yield paragraphs and tables in order, those in content controls and insertions too."""
    stack = [iter(parent)]
    while stack:
        element = next(stack[-1], None)
        if element is None:
            stack.pop()
        elif element.tag in {f"{_W}p", f"{_W}tbl"}:
            yield element
        elif element.tag in {f"{_W}{name}" for name in ("sdt", "sdtContent", "customXml", "ins", "moveTo", "smartTag")}:
            stack.append(iter(element))


def _children(parent: Any, tag: str) -> Iterator[Any]:
    """Yield the rows or cells of a table, through content controls but not into nested tables."""
    for element in parent:
        if element.tag == tag:
            yield element
        elif element.tag in {f"{_W}sdt", f"{_W}sdtContent", f"{_W}customXml", f"{_W}ins"}:
            yield from _children(element, tag)


def _text(element: Any, boxes: list[Any] | None = None) -> str:
    """Return the visible text of a paragraph or cell; text boxes are set aside into ``boxes`` when given."""
    parts: list[str] = []
    for child in element:
        tag = child.tag
        if tag in _UNSEEN or not isinstance(tag, str):
            continue
        if tag in {f"{_W}t", f"{_M}t"}:
            parts.append(child.text or "")
        elif tag in {f"{_W}br", f"{_W}cr"}:
            parts.append("\n")
        elif tag in {f"{_W}tab", f"{_W}ptab"}:
            parts.append("\t")
        elif tag == f"{_W}noBreakHyphen":
            parts.append("-")
        elif tag == _BOX and boxes is not None:
            boxes.append(child)
        elif tag == f"{_MC}AlternateContent":
            choice = child.find(f"{_MC}Choice")
            parts.append(_text(choice if choice is not None else child, boxes))
        else:
            parts.append(_text(child, boxes))
            if tag in {f"{_W}p", f"{_W}tc", f"{_W}tr"}:
                parts.append("\n")
    return "".join(parts)


def _row(row: Any) -> list[Cell]:
    """Return the cells of a row; one that starts late gets empty cells before."""
    skipped = row.find(f"{_W}trPr/{_W}gridBefore")
    before = skipped.get(f"{_W}val", "0") if skipped is not None else "0"
    lead = [Cell("", 1, int(before))] if before.isdigit() and int(before) else []
    return lead + [_cell(cell) for cell in _children(row, f"{_W}tc")]


def _cell(cell: Any) -> Cell:
    span = cell.find(f"{_W}tcPr/{_W}gridSpan")
    merge = cell.find(f"{_W}tcPr/{_W}vMerge")
    continued = merge is not None and merge.get(f"{_W}val", "continue") != "restart"
    columns = span.get(f"{_W}val", "1") if span is not None else "1"
    return Cell("" if continued else cell_text(_text(cell)), 1, int(columns) if columns.isdigit() else 1)


def _numbering(element: Any) -> tuple[int, bool]:
    """Return the indent and whether the paragraph is an item of a list; numbering 0 takes it out of one."""
    number = element.find(f"{_W}pPr/{_W}numPr/{_W}numId")
    if number is None or number.get(f"{_W}val") == "0":
        return 0, False
    level = element.find(f"{_W}pPr/{_W}numPr/{_W}ilvl")
    value = level.get(f"{_W}val", "0") if level is not None else "0"
    return (min(8, int(value)) if value.isdigit() else 0), True


def _outline_level(outline: Any) -> int:
    value = outline.get(f"{_W}val", "9")
    return min(6, int(value) + 1) if value.isdigit() and int(value) < 9 else 0
