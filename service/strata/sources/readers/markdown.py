"""Markdown: the stored text is the file's own, and blocks are line ranges of it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.token import Token

from strata.sources.readers.builder import MAX_HEADING_CHARS, make_document
from strata.sources.readers.front_matter import split_front_matter, text_field
from strata.sources.readers.markdown_links import markdown_links
from strata.sources.readers.plain import decode_normalised
from strata.sources.readers.refusal import refuse
from strata.text.document import Block, BlockKind, Document
from strata.text.paragraphs import collapse_spaces, trim_span

_KINDS: dict[str, BlockKind] = {
    "bullet_list_open": "list",
    "ordered_list_open": "list",
    "blockquote_open": "quote",
    "table_open": "table",
    "fence": "code",
    "code_block": "code",
}
_DECLARED = re.compile(r"[ \t]*\{[ \t]*#([^\s{}#]+)[^{}]*\}[ \t]*$")
_ANCHOR_TAG = re.compile(r"<(?:a|span)\s[^<>]*\b(?:id|name)\s*=\s*[\"']?([^\s\"'<>]+)[^<>]*>", re.IGNORECASE)
_COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)


def read_markdown(data: bytes, *, charset: str | None = None) -> Document:
    """Read Markdown (CommonMark and tables) with YAML or TOML front matter.

    Front matter becomes metadata and is cut off the text. ``{#name}`` at the end of a heading and an
    ``<a id>`` in it declare its anchor. Rules and blocks of HTML comments alone are no blocks. The links
    of the body are those of the document.
    """
    text, changes = decode_normalised(data, charset)
    matter = split_front_matter(text)
    body = text[matter.end :].lstrip("\n")
    if not body.strip():
        raise refuse("no_text", "The document holds front matter only.")
    env: dict[str, Any] = {}
    tokens, starts = _parser().parse(body, env), _line_starts(body)
    warnings = [matter.warning] if matter.warning else []
    links = markdown_links(body, tokens, env, starts, warnings)
    document = make_document(
        body,
        _blocks(body, tokens, starts),
        title=text_field(matter.values, "title"),
        metadata=matter.values,
        changes=changes,
        warnings=warnings,
        language=text_field(matter.values, "language", "lang", "locale") or None,
    )
    return replace(document, links=tuple(links))


def _blocks(text: str, tokens: Sequence[Token], starts: Sequence[int]) -> list[Block]:
    """Return the top-level blocks of a Markdown text; lines that are in none are paragraphs."""
    blocks: list[Block] = []
    line = 0
    for token, content in _top_level(tokens):
        if token.map is None:
            continue
        first, last = token.map
        blocks.extend(_paragraphs(text, starts, line, first))
        line = max(line, last)
        start, end = trim_span(text, starts[first], starts[min(last, len(starts) - 1)])
        if start < end and not _is_silent(token):
            indent = text.rfind("\n", 0, start) + 1 if token.type == "code_block" else start
            blocks.append(_heading(token, content, start, end) or Block(_kind(token), indent, end))
    blocks.extend(_paragraphs(text, starts, line, len(starts) - 1))
    return blocks


@lru_cache(maxsize=1)
def _parser() -> MarkdownIt:
    """Return a parser of blocks only: inline markup is read where it is needed, which halves the time."""
    parser = MarkdownIt("commonmark").enable("table")
    parser.core.ruler.disable(["normalize", "inline", "text_join"])
    return parser


@lru_cache(maxsize=1)
def _inline_parser() -> MarkdownIt:
    return MarkdownIt("commonmark")


def _line_starts(text: str) -> list[int]:
    starts = [0]
    starts.extend(match.end() for match in re.finditer("\n", text))
    if starts[-1] != len(text):
        starts.append(len(text))
    return starts


def _top_level(tokens: Sequence[Token]) -> Iterator[tuple[Token, str]]:
    """Yield the tokens that open a top-level block, with the inline source of headings."""
    for index, token in enumerate(tokens):
        if token.level == 0 and token.nesting >= 0:
            yield token, tokens[index + 1].content if token.type == "heading_open" else ""


def _paragraphs(text: str, starts: Sequence[int], first: int, last: int) -> Iterator[Block]:
    """Cover lines that the parser gave no token (link definitions, what lies nested too deep)."""
    if first < last:
        start, end = trim_span(text, starts[first], starts[last])
        if start < end:
            yield Block("paragraph", start, end)


def _is_silent(token: Token) -> bool:
    """Tell rules and comments, which say nothing to a reader, from blocks."""
    if token.type == "hr":
        return True
    return token.type == "html_block" and not _COMMENT.sub("", token.content).strip()


def _kind(token: Token) -> BlockKind:
    return _KINDS.get(token.type, "paragraph")


def _heading(token: Token, content: str, start: int, end: int) -> Block | None:
    """Return the heading block; an empty heading is none, for nothing can be cited by it."""
    if token.type != "heading_open":
        return None
    anchor = None
    if declared := _DECLARED.search(content):
        anchor, content = declared[1], content[: declared.start()]
    if tag := _ANCHOR_TAG.search(content):
        anchor = anchor or tag[1]
    rendered = render_inline(content)
    if not rendered:
        return None
    return Block("heading", start, end, level=int(token.tag[1]), heading=rendered[:MAX_HEADING_CHARS], anchor=anchor)


def render_inline(content: str) -> str:
    """Return the text a reader sees of inline Markdown: no markup, image descriptions kept."""
    if not re.search(r"[\\`*_\[\]<>&!]", content):
        return collapse_spaces(content)
    parts: list[str] = []
    for token in _inline_parser().parseInline(content):
        for child in token.children or ():
            if child.type in {"text", "code_inline", "image", "text_special"}:
                parts.append(child.content)
            elif child.type in {"softbreak", "hardbreak"}:
                parts.append("\n")
    return collapse_spaces("".join(parts))
