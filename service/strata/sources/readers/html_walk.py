"""One walk over an HTML tree, without recursion: pages nest deeper than any stack."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from selectolax.lexbor import LexborNode

from strata.sources.readers.builder import DocumentBuilder
from strata.sources.readers.tables import MAX_SPAN, Cell, cell_text, expand_spans, render_rows
from strata.text.paragraphs import collapse_spaces

_NEVER_TEXT = frozenset(
    {
        "script", "style", "template", "noscript", "head", "title", "iframe", "canvas", "object", "audio", "video",
        "button", "select", "datalist", "textarea", "dialog", "svg", "rt", "rp", "-comment",
    }
)  # fmt: skip
_FURNITURE = frozenset({"nav", "aside", "footer", "header", "menu"})
_FURNITURE_ROLES = frozenset({"navigation", "banner", "contentinfo", "search", "menu", "menubar"})
# Marks that the common generators (Sphinx, DocBook, MediaWiki, Docusaurus, Jekyll) put on what is not text;
# a table of contents repeats the headings.
_FURNITURE_CLASSES = frozenset(
    {
        "headerlink", "anchorjs-link", "hash-link", "mw-editsection", "mw-jump-link", "navbox", "sphinxsidebar",
        "noprint", "sr-only", "navheader", "navfooter", "toc", "table-of-contents",
    }
)  # fmt: skip
_BLOCKS = frozenset(
    {
        "address", "article", "aside", "blockquote", "body", "center", "dd", "details", "dir", "div", "dl", "dt",
        "fieldset", "figcaption", "figure", "footer", "form", "header", "hgroup", "hr", "html", "legend", "li", "main",
        "menu", "nav", "ol", "p", "pre", "search", "section", "summary", "table", "tbody", "td", "tfoot", "th",
        "thead", "tr", "ul", "caption", "option", "optgroup",
    }
)  # fmt: skip
_ANCHORED = frozenset({"section", "div", "article"})
_MENU_CLASSES = frozenset({"menu", "nav", "navbar", "navigation", "breadcrumb", "breadcrumbs", "pagination", "pager"})
# A part that is named like a menu is one when this much of its text is links.
_LINK_SHARE = 0.8
_HEADINGS = frozenset({"h1", "h2", "h3", "h4", "h5", "h6"})
_LISTS = frozenset({"ul", "ol", "dir", "menu"})
_IN_ARTICLE = frozenset({"article", "main"})
_BREAK = "\x1e"
_MAX_TABLE_DEPTH = 8
_MAX_INDENT = 8


class HtmlWalk:
    """Turns the tree under one node into blocks of a builder."""

    def __init__(self, builder: DocumentBuilder, *, drop_furniture: bool) -> None:
        self._builder = builder
        self._drop_furniture = drop_furniture
        self._inline: list[str] = []
        self._lines: list[str] = []
        self._lists: list[int | None] = []
        self._marker = ""
        self._quotes = 0
        self._articles = 0
        self._headers = 0
        self._tables = 0
        self._anchor: str | None = None

    def read(self, root: LexborNode) -> None:
        """Read everything under ``root``."""
        for node, entering in _steps(root, self._enter):
            if not entering:
                self._leave(node)
        self._flush()
        self._end_list()

    def _enter(self, node: LexborNode) -> bool:
        """Take a node in; return whether to go into its children."""
        tag = node.tag or ""
        if node.is_text_node:
            self._inline.append(node.text_content or "")
            return False
        if tag in _NEVER_TEXT or _is_hidden(node) or (self._drop_furniture and self._is_furniture(node, tag)):
            return False
        if tag in _HEADINGS and not self._lists:
            self._heading(node, tag)
        elif tag == "pre":
            self._code(node)
        elif tag == "table" and self._is_data_table(node):
            self._table(node)
        else:
            self._open(node, tag)
            return True
        return False

    def _open(self, node: LexborNode, tag: str) -> None:
        """Begin a block element, or take note of a line break; other inline elements change nothing."""
        if tag == "br":
            self._inline.append(_BREAK)
        if tag not in _BLOCKS and tag not in _HEADINGS:
            return
        self._flush()
        self._articles += tag in _IN_ARTICLE
        self._headers += tag == "header"
        self._quotes += tag == "blockquote"
        self._tables += tag == "table"
        if tag in _LISTS:
            self._lists.append(_start_number(node) if tag == "ol" else None)
        elif tag == "li" and self._lists:
            self._marker = self._next_marker()
        elif tag in _ANCHORED and node.id:
            self._anchor = node.id

    def _leave(self, node: LexborNode) -> None:
        tag = node.tag or ""
        if tag not in _BLOCKS and tag not in _HEADINGS:
            return
        self._flush()
        self._articles -= tag in _IN_ARTICLE
        self._headers -= tag == "header"
        self._quotes -= tag == "blockquote"
        self._tables -= tag == "table"
        if tag == "li":
            self._marker = ""
        if tag in _ANCHORED:
            self._anchor = None
        if tag in _LISTS and self._lists:
            self._lists.pop()
            if not self._lists:
                self._end_list()

    def _flush(self) -> None:
        """End the running line of text: a paragraph, or a line of the list it stands in."""
        if not self._inline:
            return
        parts = "".join(self._inline).split(_BREAK)
        self._inline = []
        lines = [line for line in (collapse_spaces(part) for part in parts) if line]
        if not lines:
            return
        self._anchor = None
        if self._lists:
            self._list_lines(lines)
        else:
            self._builder.add("quote" if self._quotes else "paragraph", "\n".join(lines))

    def _list_lines(self, lines: list[str]) -> None:
        depth = min(len(self._lists) - 1, _MAX_INDENT)
        for line in lines:
            self._lines.append("  " * depth + (self._marker or "  ") + line)
            self._marker = ""

    def _end_list(self) -> None:
        if self._lines:
            self._builder.add("list", "\n".join(self._lines))
            self._lines = []

    def _next_marker(self) -> str:
        number = self._lists[-1]
        if number is None:
            return "- "
        self._lists[-1] = number + 1
        return f"{number}. "

    def _heading(self, node: LexborNode, tag: str) -> None:
        self._flush()
        anchor = node.id or _inner_anchor(node) or self._anchor
        self._anchor = None
        self._builder.add("heading", collapse_spaces(self._text(node)), level=int(tag[1]), anchor=anchor or None)

    def _code(self, node: LexborNode) -> None:
        self._flush()
        text = self._text(node, preformatted=True)
        if self._lists:
            self._list_lines([line for line in text.split("\n") if line.strip()])
        else:
            self._builder.add("code", text)

    def _table(self, node: LexborNode) -> None:
        self._flush()
        rows: list[list[Cell]] = []
        caption = ""
        for part, entering in _steps(node, lambda part: part.tag not in {"td", "th", "caption"}):
            if not entering:
                continue
            if part.tag == "caption":
                caption = cell_text(self._text(part))
            elif part.tag == "tr":
                rows.append([])
            elif part.tag in {"td", "th"} and rows:
                rows[-1].append(Cell(cell_text(self._text(part)), _span(part, "rowspan"), _span(part, "colspan")))
        text = render_rows([[caption], *expand_spans(rows)])
        if self._lists:
            self._list_lines(text.split("\n") if text else [])
        else:
            self._builder.add("table", text)

    def _text(self, node: LexborNode, *, preformatted: bool = False) -> str:
        """Return the visible text under a node; blocks and line breaks part lines."""
        parts: list[str] = []

        def enter(part: LexborNode) -> bool:
            tag = part.tag or ""
            if part.is_text_node:
                text = part.text_content or ""
                parts.append(text if preformatted else text.replace("\r", " "))
                return False
            if tag in _NEVER_TEXT or _is_hidden(part) or not _FURNITURE_CLASSES.isdisjoint(_classes(part)):
                return False
            if tag == "br" or tag in _BLOCKS:
                parts.append("\n")
            return True

        for part, entering in _steps(node, enter):
            if not entering and (part.tag or "") in _BLOCKS:
                parts.append("\n")
        return "".join(parts)

    def _is_furniture(self, node: LexborNode, tag: str) -> bool:
        """Tell navigation, side bars and the page's own head and foot from the text.

        Inside an article a header or an aside is part of it; a page header with the top heading stays,
        but for the lists of links in it.
        """
        attributes = node.attributes
        if tag == "nav" or (attributes.get("role") or "").lower() in _FURNITURE_ROLES:
            return True
        classes = _classes(node)
        if not _FURNITURE_CLASSES.isdisjoint(classes):
            return True
        if not _MENU_CLASSES.isdisjoint(classes) and _link_share(node) >= _LINK_SHARE:
            return True
        if self._headers and tag in _LISTS:
            return True
        if tag not in _FURNITURE or self._articles:
            return False
        return tag != "menu" and not (tag == "header" and node.css_first("h1") is not None)

    def _is_data_table(self, node: LexborNode) -> bool:
        """Tell a table of data from one that only lays out the page."""
        if self._tables >= _MAX_TABLE_DEPTH or (node.attributes.get("role") or "") in {"presentation", "none"}:
            return False
        if node.css_first("td h1, td h2, td h3, th h1, th h2, th h3") is not None:
            return False
        return node.css_first("th") is not None or all(inner.mem_id == node.mem_id for inner in node.css("table"))


def _steps(root: LexborNode, enter: Callable[[LexborNode], bool]) -> Iterator[tuple[LexborNode, bool]]:
    """Walk below ``root`` in document order, yielding (node, True) on the way in and (node, False) on the way out.

    ``enter`` says whether to go below a node; the way out is told of those nodes alone.
    """
    node = root.first_child
    depth = 1
    while node is not None:
        below = enter(node)
        yield node, True
        child = node.first_child if below else None
        if child is not None:
            node = child
            depth += 1
            continue
        if below:
            yield node, False
        while node.next is None:
            depth -= 1
            parent = node.parent
            if depth == 0 or parent is None:
                return
            node = parent
            yield node, False
        node = node.next


def _classes(node: LexborNode) -> list[str]:
    return (node.attributes.get("class") or "").split()


def _is_hidden(node: LexborNode) -> bool:
    attributes = node.attributes
    if not attributes:
        return False
    if "hidden" in attributes or (attributes.get("aria-hidden") or "").lower() == "true":
        return True
    style = (attributes.get("style") or "").replace(" ", "").lower()
    return "display:none" in style or "visibility:hidden" in style


def _link_share(node: LexborNode) -> float:
    """Return which part of the letters under a node stands in links."""
    letters = len("".join(node.text().split()))
    linked = sum(len("".join(link.text().split())) for link in node.css("a"))
    return linked / letters if letters else 0.0


def _inner_anchor(node: LexborNode) -> str | None:
    inner = node.css_first("a[id], a[name], span[id]")
    if inner is None:
        return None
    return inner.id or inner.attributes.get("name")


def _span(node: LexborNode, name: str) -> int:
    value = (node.attributes.get(name) or "1").strip()
    if not value.isascii() or not value.isdigit():
        return 1
    return min(int(value[:6]), MAX_SPAN) if value.strip("0") else (0 if name == "rowspan" else 1)


def _start_number(node: LexborNode) -> int:
    value = (node.attributes.get("start") or "1").strip()
    return int(value) if value.isascii() and value.isdigit() and len(value) < 9 else 1
