"""How a document relates to others, as it says itself: relations with a predicate, and links without."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from strata.sources.targets import (
    BadTargetError,
    Form,
    Target,
    declared_target,
    is_external,
    plain_target,
    split_targets,
    wiki_target,
)
from strata.text.document import Document, Link

MAX_DECLARED = 200
MAX_LINKS = 1_000
MAX_WARNINGS = 10
MAX_WRITTEN_CHARS = 2_048
MAX_LABEL_CHARS = 500

_PREFIX = "rel-"
_PREDICATE = re.compile(r"[a-z0-9-]{1,64}")
_SHOWN_CHARS = 80


@dataclass(frozen=True, slots=True)
class Relation:
    """A relation of one document to another, or a link, which has no predicate.

    ``target`` is what it is found by (:class:`~strata.sources.targets.Target`), ``written`` how the document has it.
    ``section`` is the ordinal of the section that it stands in, 0 for what is declared; ``count`` how often.
    """

    predicate: str
    form: Form
    target: str
    written: str
    anchor: str | None = None
    label: str = ""
    section: int = 0
    count: int = 1


def relations_of(
    path: str, document: Document, metadata: Mapping[str, object], warnings: list[str]
) -> tuple[Relation, ...]:
    """Return the relations of a document in their order: declared ones, then links as they stand in the text.

    ``metadata`` in its own order: the fields named ``rel-<predicate>`` declare. What repeats is counted, and
    the first label stays. Gives at most 200 declared ones and 1,000 links; what is left out is in ``warnings``,
    except links that lead out of the context, to the document itself or nowhere.
    """
    problems: list[str] = []
    declared = _merged(_declared(path, metadata, problems))
    links = _merged(_links(path, document))
    warnings.extend(problems[:MAX_WARNINGS])
    if len(problems) > MAX_WARNINGS:
        warnings.append(f"{len(problems) - MAX_WARNINGS:,} more declared relations were left out.")
    if len(declared) > MAX_DECLARED:
        warnings.append(f"{len(declared) - MAX_DECLARED:,} declared relations beyond {MAX_DECLARED} were left out.")
    if len(links) > MAX_LINKS:
        warnings.append(f"{len(links) - MAX_LINKS:,} links beyond {MAX_LINKS:,} were left out.")
    return (*declared[:MAX_DECLARED], *links[:MAX_LINKS])


def _declared(path: str, metadata: Mapping[str, object], problems: list[str]) -> Iterator[Relation]:
    for field, value in metadata.items():
        if field[: len(_PREFIX)].lower() != _PREFIX:
            continue
        predicate = field[len(_PREFIX) :].lower()
        if not _PREDICATE.fullmatch(predicate):
            problems.append(f"{_shown(field)} was left out: a predicate has 1 to 64 letters a-z, digits and hyphens.")
            continue
        written = _written(value)
        if written is None or not written:
            why = "is no text and no list of texts" if written is None else "names no document"
            problems.append(f"{field} {why} and was left out.")
            continue
        for text in written:
            try:
                target, label = declared_target(path, text)
            except BadTargetError as error:
                problems.append(f"{field}: {_shown(text)} {error} and was left out.")
            else:
                yield _relation(predicate, target, text, label)


def _written(value: object) -> list[str] | None:
    """Return the targets in a value: a text is split, an item of a list is one target.

    YAML takes ``[[Name]]`` without quotes for a list in a list: it is read as the wiki link that it looks like.
    """
    if isinstance(value, list):
        items = [f"[[{', '.join(_words(item))}]]" if isinstance(item, list) else _scalar(item) for item in value]
        return None if any(item is None for item in items) else [item for item in items if item is not None]
    text = "" if value is None else _scalar(value)
    return None if text is None else list(split_targets(text))


def _words(value: object) -> Iterator[str]:
    if isinstance(value, list):
        for item in value:
            yield from _words(item)
    elif (word := _scalar(value)) is not None:
        yield word


def _scalar(value: object) -> str | None:
    if isinstance(value, str):
        return value.strip()
    return str(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _links(path: str, document: Document) -> Iterator[Relation]:
    headings = [block.start for block in document.blocks if block.kind == "heading"]
    for link in document.links:
        if not link.is_wiki and is_external(link.target):
            continue
        try:
            target = wiki_target(path, link.target) if link.is_wiki else plain_target(path, link.target)
        except BadTargetError:
            continue
        if link.is_wiki and target.form == "url":
            continue
        # Section 0 is the document, each heading opens the next.
        yield replace(_relation("", target, _as_written(link), link.label), section=bisect_right(headings, link.start))


def _as_written(link: Link) -> str:
    return f"[[{link.target}]]" if link.is_wiki else link.target


def _relation(predicate: str, target: Target, written: str, label: str) -> Relation:
    return Relation(
        predicate,
        target.form,
        target.name,
        written[:MAX_WRITTEN_CHARS],
        target.anchor,
        " ".join(label.split())[:MAX_LABEL_CHARS],
    )


def _merged(relations: Iterator[Relation]) -> list[Relation]:
    """Count what repeats: one with the same predicate, target and section of the target."""
    merged: dict[tuple[str, str, str, str | None], Relation] = {}
    for relation in relations:
        name = relation.target.lower() if relation.form == "name" else relation.target
        key = (relation.predicate, relation.form, name, relation.anchor)
        first = merged.get(key)
        merged[key] = (
            relation if first is None else replace(first, count=first.count + 1, label=first.label or relation.label)
        )
    return list(merged.values())


def _shown(text: str) -> str:
    """Return a value as a warning quotes it, short and printable."""
    cut = text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}…"
    return "'" + "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in cut) + "'"
