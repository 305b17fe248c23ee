"""Links of Markdown: inline, by reference, and ``[[wiki]]`` ones."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token

from strata.text.document import Link
from strata.text.paragraphs import collapse_spaces

MAX_LINK_SOURCE_CHARS = 1024 * 1024
MAX_LABEL_CHARS = 500

_WIKI = re.compile(r"\[\[([^\[\]`\n]{1,2048})\]\]")
_MARKS = ("](", "][", "]:", "[[")


def markdown_links(
    text: str, tokens: Sequence[Token], env: Mapping[str, Any], starts: Sequence[int], warnings: list[str]
) -> list[Link]:
    """Return the links of a text that was parsed into blocks, in text order.

    Only paragraphs that can hold a link are parsed again; where these have more than 1,048,576 characters
    the rest is left out with a warning. Images, embedded files (``![[name]]``), code, HTML and links that
    name nothing give none.
    """
    if not any(mark in text for mark in _MARKS):
        return []
    links: list[Link] = []
    room = MAX_LINK_SOURCE_CHARS
    has_references = bool(env.get("references"))
    line = 0
    for token in tokens:
        # Cells have no line of their own, their row has.
        line = token.map[0] if token.map else line
        if token.type != "inline" or not _can_link(token.content, has_references=has_references):
            continue
        room -= len(token.content)
        if room < 0:
            warnings.append(f"Links beyond {MAX_LINK_SOURCE_CHARS:,} characters of text with links were not read.")
            break
        links.extend(_links(token.content, env, starts[min(line, len(starts) - 1)]))
    return links


def _can_link(content: str, *, has_references: bool) -> bool:
    return "](" in content or "[[" in content or (has_references and "[" in content)


@lru_cache(maxsize=1)
def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark")
    parser.inline.ruler.before("link", "wiki_link", _wiki_rule)
    return parser


def _wiki_rule(state: StateInline, silent: bool) -> bool:  # noqa: FBT001  the parser calls it so
    match = _WIKI.match(state.src, state.pos)
    if match is None or _is_embedded(state.src, state.pos):
        return False
    if not silent:
        state.push("wiki_link", "", 0).content = match[1]
    state.pos = match.end()
    return True


def _is_embedded(source: str, position: int) -> bool:
    """Tell whether an exclamation mark that is not escaped stands before the position."""
    return source[position - 1 : position] == "!" and source[position - 2 : position - 1] != "\\"


def _links(content: str, env: Mapping[str, Any], start: int) -> Iterator[Link]:
    """Yield the links of one inline text; a link within a link's label counts for itself."""
    href, label = "", list[str]()
    for child in _parser().parseInline(content, dict(env))[0].children or ():
        match child.type:
            case "wiki_link":
                name, _, shown = child.content.partition("|")
                if name.strip():
                    yield Link(start, collapse_spaces(name), _shown(shown), is_wiki=True)
            case "link_open":
                href, label = str(child.attrGet("href") or ""), []
            case "link_close" if href:
                yield Link(start, href, _shown("".join(label)))
                href = ""
            case "softbreak" | "hardbreak":
                label.append(" ")
            case _:
                label.append(child.content)


def _shown(label: str) -> str:
    return collapse_spaces(label)[:MAX_LABEL_CHARS]
