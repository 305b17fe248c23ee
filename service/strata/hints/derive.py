"""Hints that a document gives of itself: its front matter, its title, its headings."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID, uuid5

from strata.hints.generic import is_generic
from strata.hints.names import normalise_name
from strata.hints.schemas import (
    MAX_ALIASES,
    MAX_BREADCRUMB,
    MAX_CATEGORY_CHARS,
    MAX_KEYWORDS,
    MAX_NAME_CHARS,
    MAX_SUMMARY_CHARS,
    MAX_TARGET_CHARS,
    MAX_TITLE_CHARS,
    HintEntry,
    HintOrigin,
)
from strata.hints.targets import join_target
from strata.text.normalise import clean_json, normalise_text

MAX_HEADINGS_PER_SOURCE = 2000
_NUMBERING = re.compile(
    r"(?:\d{1,3}(?:\.\d{1,3}){1,5}\.?|\d{1,3}[.)]|[A-Z][.)]|[IVXLC]{1,6}[.)])\s+"
    r"|第[\d一二三四五六七八九十百]{1,5}[章节節条條编編部]\s*|[一二三四五六七八九十]{1,3}[、.]\s*"
)
_LIST_SEPARATOR = re.compile(r"[,;、，；\n]")


@dataclass(frozen=True, slots=True)
class SourceHints:
    """What an ingested document offers: ``sections`` are (heading, anchor, breadcrumb) in text order."""

    path: str
    title: str
    category: str | None = None
    sections: Sequence[tuple[str, str | None, Sequence[str]]] = ()
    front_matter: Mapping[str, object] = field(default_factory=dict)


def derive_entries(context: UUID, source: UUID, offered: SourceHints) -> list[HintEntry]:
    """Return the entries of a document; the same document gives the same ids.

    One for the document: of front matter where that has aliases, keywords, a category or a summary,
    else of its title. One for each heading that names a subject, the first 2,000. Never fails on
    odd front matter: what cannot be used is left out.
    """
    entries = [entry for entry in (_document(context, source, offered),) if entry]
    taken, targets = {normalise_name(offered.title)}, set[str]()
    for heading, anchor, breadcrumb in offered.sections:
        if len(entries) > MAX_HEADINGS_PER_SOURCE:
            break
        title = _line(heading, MAX_NAME_CHARS)
        name = normalise_name(_unnumbered(title) or title)
        if not anchor or not title or len(heading) > MAX_NAME_CHARS or is_generic(name) or name in taken:
            continue
        target = normalise_text(join_target(offered.path, anchor)).text
        if target in targets:
            continue
        taken.add(name)
        targets.add(target)
        entries.append(
            HintEntry(
                hint_id=_stable_id(context, source, target),
                context_id=context,
                origin=HintOrigin.DERIVED,
                source_id=source,
                title=title,
                aliases=_aliases(title),
                category=_category(offered),
                breadcrumb=[_line(part, MAX_NAME_CHARS) for part in breadcrumb[:MAX_BREADCRUMB]],
                targets=_targets(target),
            )
        )
    return entries


def _document(context: UUID, source: UUID, offered: SourceHints) -> HintEntry | None:
    title = _line(offered.title, MAX_TITLE_CHARS) or _line(offered.path, MAX_TITLE_CHARS)
    if not normalise_name(title):
        return None
    values = offered.front_matter
    aliases = _names(values, MAX_ALIASES, "aliases", "alias")
    keywords = _names(values, MAX_KEYWORDS, "keywords", "keyword")
    summary = next(_texts(values, "summary", "description"), "")[:MAX_SUMMARY_CHARS].strip()
    is_described = bool(aliases or keywords or summary or values.get("category"))
    if not is_described and not offered.title.strip():
        return None
    return HintEntry(
        hint_id=_stable_id(context, source, ""),
        context_id=context,
        origin=HintOrigin.FRONTMATTER if is_described else HintOrigin.DERIVED,
        source_id=source,
        title=title,
        aliases=aliases,
        keywords=keywords,
        category=_category(offered),
        summary=summary or None,
        targets=_targets(normalise_text(join_target(offered.path)).text),
    )


def _stable_id(context: UUID, source: UUID, target: str) -> UUID:
    return uuid5(source, f"{context}\n{target}")


def _targets(target: str) -> list[str]:
    return [target] if len(target) <= MAX_TARGET_CHARS else []


def _category(offered: SourceHints) -> str | None:
    return _line(offered.category or "", MAX_CATEGORY_CHARS) or None


def _line(text: str, limit: int) -> str:
    return " ".join(normalise_text(text).text.split())[:limit].strip()


def _unnumbered(title: str) -> str:
    """Return a heading without its number: "3.2 Leave" as "Leave"."""
    return title[found.end() :] if (found := _NUMBERING.match(title)) else title


def _aliases(title: str) -> list[str]:
    plain = _unnumbered(title)
    return [plain] if plain != title and normalise_name(plain) else []


def _texts(values: Mapping[str, object], *names: str) -> Iterator[str]:
    """Yield the texts of the fields; YAML's reading of ``no`` is undone, what is nested is left out."""
    for name in names:
        value = values.get(name)
        for item in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(item, bool):
                yield "yes" if item else "no"
            elif isinstance(item, (str, int, float)) and (cleaned := clean_json(item)) is not None:
                yield str(cleaned)


def _names(values: Mapping[str, object], limit: int, *names: str) -> list[str]:
    """Return the distinct usable names of the fields; one text may hold several, parted by commas."""
    found: dict[str, str] = {}
    listed = any(isinstance(values.get(name), (list, tuple)) for name in names)
    for text in _texts(values, *names):
        for part in (text,) if listed else _LIST_SEPARATOR.split(text):
            name = _line(part, MAX_NAME_CHARS + 1)
            if len(name) <= MAX_NAME_CHARS and (norm := normalise_name(name)):
                found.setdefault(norm, name)
    return list(found.values())[:limit]
