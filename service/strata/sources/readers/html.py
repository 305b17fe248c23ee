"""HTML: main text, headings with their ids, lists, tables and code as blocks."""

from __future__ import annotations

import re
from collections.abc import Mapping

from selectolax.lexbor import LexborHTMLParser, LexborNode

from strata.sources.readers.builder import DocumentBuilder
from strata.sources.readers.html_walk import HtmlWalk
from strata.sources.readers.plain import decode_normalised
from strata.sources.readers.refusal import refuse
from strata.text.document import Document
from strata.text.paragraphs import collapse_spaces

_META_CHARSET = re.compile(rb"<meta[^>]*?charset\s*=\s*[\"']?\s*([\w.:-]+)", re.IGNORECASE)
_XML_CHARSET = re.compile(rb"<\?xml[^>]*?encoding\s*=\s*[\"']([\w.:-]+)", re.IGNORECASE)
_SNIFF_BYTES = 4096
# A <main> that holds less than this part of the page's text is not the main text.
_MAIN_SHARE = 0.2
_META_NAMES = {
    "description": "description",
    "og:description": "description",
    "keywords": "keywords",
    "author": "author",
    "date": "date",
    "article:published_time": "date",
    "dcterms.date": "date",
    "og:site_name": "site",
}


def read_html(data: bytes, *, charset: str | None = None) -> Document:
    """Read a web page: the main text without scripts, navigation and hidden parts.

    A page whose text lies wholly in what looks like page furniture is read whole. White space is
    collapsed outside ``pre``; table rows become lines; ids of headings, or of the section they open,
    are their anchors. ``title``, ``lang`` and the usual ``meta`` names become metadata.
    """
    text, changes = decode_normalised(data, charset or _declared_charset(data))
    tree = LexborHTMLParser(text)
    builder = _best_reading(tree)
    for name, count in changes.items():
        builder.changes[name] = builder.changes.get(name, 0) + count
    metadata = _metadata(tree)
    root = tree.root
    language = (root.attributes.get("lang") or root.attributes.get("xml:lang") or "") if root else ""
    if not len(builder):
        raise refuse("no_text", "The page holds no text.")
    return builder.build(title=_title(tree), metadata=metadata, language=language.strip() or None)


def _declared_charset(data: bytes) -> str | None:
    head = data[:_SNIFF_BYTES]
    match = _META_CHARSET.search(head) or _XML_CHARSET.search(head)
    name = match[1].decode("ascii", "replace") if match else None
    # A declaration that could be read byte by byte cannot be true of UTF-16.
    return "utf-8" if name and name.lower().startswith("utf-16") else name


def _best_reading(tree: LexborHTMLParser) -> DocumentBuilder:
    """Read the main element, else the body without furniture, else all of it: the first that holds the text."""
    body = tree.body or tree.root
    if body is None:
        return DocumentBuilder()
    page = _read(body, drop_furniture=True)
    mains = [node for node in tree.css("main, [role=main]") if node.parent is not None]
    if len(mains) == 1:
        main = _read(mains[0], drop_furniture=True)
        if len(main) and len(main) >= _MAIN_SHARE * len(page):
            return main
    return page if len(page) else _read(body, drop_furniture=False)


def _read(root: LexborNode, *, drop_furniture: bool) -> DocumentBuilder:
    builder = DocumentBuilder()
    HtmlWalk(builder, drop_furniture=drop_furniture).read(root)
    return builder


def _title(tree: LexborHTMLParser) -> str:
    """Return the page's title; its one top heading instead, where the title only adds the site to it."""
    node = tree.css_first("head title")
    title = collapse_spaces(node.text()) if node else ""
    tops = tree.css("h1")
    if title and len(tops) == 1:
        top = collapse_spaces(tops[0].text())
        if top and re.match(r"\s+[-|–—·:»]\s", title.removeprefix(top)) and title.startswith(top):
            return top
    return title


def _metadata(tree: LexborHTMLParser) -> Mapping[str, object]:
    values: dict[str, object] = {}
    for node in tree.css("meta"):
        name = (node.attributes.get("name") or node.attributes.get("property") or "").lower()
        content = collapse_spaces(node.attributes.get("content") or "")
        if content and name in _META_NAMES:
            values.setdefault(_META_NAMES[name], content)
    link = tree.css_first("link[rel=canonical]")
    if link and link.attributes.get("href"):
        values["canonical"] = link.attributes["href"]
    return values
