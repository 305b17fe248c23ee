"""From what a document writes to what the target is found by. Nothing here reads anything: it is all text."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal
from urllib.parse import unquote, urljoin

from strata.sources.paths import MAX_PATH_BYTES
from strata.sources.readers import FORMATS
from strata.text.normalise import normalise_text

Form = Literal["path", "name", "url"]

IMPLIED = (".md", "/index.md", "/README.md")
"""What a path may leave out, in the order in which it is tried."""

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:(?=\S)")
_SPACES = re.compile(r"\s+")
_WIKI = re.compile(r"\[\[([^\[\]]*)\]\]")
_INLINE = re.compile(
    r"\[([^\[\]]*)\]\(\s*(?:<([^<>]*)>|([^\s()]*(?:\([^\s()]*\)[^\s()]*)*))(?:\s+[\"'(].*)?\s*\)", re.DOTALL
)
_EXTENSIONS = frozenset(extension for entry in FORMATS.values() for extension in entry.extensions)
# A comma inside a link parts nothing.
_PIECE = re.compile(r"(?:\[\[[^\[\]\n]*\]\]|\[[^\[\]\n]*\]\([^()\n]*(?:\([^()\n]*\)[^()\n]*)*\)|[^,\n])+")


class BadTargetError(ValueError):
    """A target that can name no document; its text says why, as the end of a sentence."""


class SelfTargetError(BadTargetError):
    """A target that is the document itself, or a section of it."""


@dataclass(frozen=True, slots=True)
class Target:
    """What a document is found by: a path from the context's root, a name in whatever case, or a URL.

    ``anchor`` is the section, as written; None for the whole document.
    """

    form: Form
    name: str
    anchor: str | None = None


def split_targets(text: str) -> Iterator[str]:
    """Yield the targets of a list by commas and line breaks; those inside a link do not part it."""
    for match in _PIECE.finditer(text):
        if piece := match[0].strip():
            yield piece


def declared_target(own_path: str, written: str) -> tuple[Target, str]:
    """Return what a declared target is found by, and its label; raises :class:`BadTargetError`.

    Takes a path, a URL, ``[label](target)`` and ``[[Name#Heading|label]]``.
    """
    if match := _WIKI.fullmatch(written):
        name, _, label = match[1].partition("|")
        return wiki_target(own_path, name), label.strip()
    if match := _INLINE.fullmatch(written):
        return plain_target(own_path, match[2] if match[2] is not None else match[3]), match[1].strip()
    return plain_target(own_path, written), ""


def plain_target(own_path: str, written: str) -> Target:
    """Resolve a path against the document's own one, or from the root with a leading slash.

    Percent-encoding is decoded. What begins with a scheme is a URL and stays as it is.
    Raises :class:`BadTargetError`.
    """
    written = _storable(written.strip())
    if _SCHEME.match(written):
        name, _, fragment = written.partition("#")
        target = Target("url", _bounded(name), _anchor(fragment))
    else:
        name, _, fragment = written.partition("#")
        name = _storable(_decoded(name))
        anchor = _anchor(_storable(_decoded(fragment)))
        if not name.strip():
            raise SelfTargetError("names a section of the document itself") if anchor else BadTargetError("is empty")
        target = _located(own_path, name, anchor)
    return _not_self(own_path, target)


def wiki_target(own_path: str, written: str) -> Target:
    """Resolve what stands in double brackets: a name, or with a slash a path from the root.

    ``./`` and ``../`` start from the document's folder. The extension of a format that is read is no part of a
    name. Of several headings (``Name#Part#Chapter``) the last counts. Raises :class:`BadTargetError`.
    """
    name, _, headings = _storable(written).partition("#")
    name, anchor = _SPACES.sub(" ", name).strip(), _anchor(headings.rpartition("#")[2])
    if not name:
        raise SelfTargetError("names a section of the document itself") if anchor else BadTargetError("is empty")
    if _URL.match(name):
        return _not_self(own_path, Target("url", _bounded(name), anchor))
    if "/" in name:
        is_relative = name.startswith(("./", "../"))
        return _not_self(own_path, _located(own_path, name if is_relative else f"/{name}", anchor))
    stem, extension = _split_extension(name)
    if extension not in _EXTENSIONS:
        stem, extension = name, ""
    own_stem, own_extension = _split_extension(own_path.rpartition("/")[2])
    if stem.lower() == own_stem.lower() and extension in {"", own_extension}:
        raise SelfTargetError("is the document itself")
    return Target("name", _bounded(stem), anchor)


def paths_for(path: str) -> tuple[str, ...]:
    """Return what a document may be found by when its path is meant: the path, and what may be left out of it."""
    short = (path.removesuffix(ending) for ending in IMPLIED if path.endswith(ending))
    return tuple(dict.fromkeys([path, *(name for name in short if name)]))


def is_external(written: str) -> bool:
    """Tell whether a link in a text leads out of the context."""
    return _SCHEME.match(written) is not None or written.startswith("//")


def _located(own_path: str, name: str, anchor: str | None) -> Target:
    if _URL.match(own_path):
        return Target("url", _bounded(_joined(own_path, name)), anchor)
    parts = [] if name.startswith("/") else [part for part in own_path.split("/")[:-1] if part not in {"", "."}]
    for part in _SPACES.sub(" ", name).strip().split("/"):
        if part == "..":
            if not parts:
                raise BadTargetError("leads above the root")
            parts.pop()
        elif part not in {"", "."}:
            parts.append(part)
    if not parts:
        raise BadTargetError("names no document")
    return Target("path", _bounded("/".join(parts)), anchor)


def _joined(base: str, name: str) -> str:
    try:
        return urljoin(base, name)
    except ValueError:
        raise BadTargetError("is no address") from None


def _not_self(own_path: str, target: Target) -> Target:
    if target.form != "name" and target.name in paths_for(own_path):
        raise SelfTargetError("is the document itself")
    return target


def _decoded(text: str) -> str:
    if "%" not in text:
        return text
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        return text


def _storable(text: str) -> str:
    if any(unicodedata.category(char) in {"Cc", "Cs"} for char in text):
        raise BadTargetError("holds control characters")
    return normalise_text(text).text


def _bounded(name: str) -> str:
    if len(name.encode()) > MAX_PATH_BYTES:
        raise BadTargetError(f"is longer than {MAX_PATH_BYTES} bytes")
    return name


def _anchor(fragment: str) -> str | None:
    return _bounded(_SPACES.sub(" ", fragment).strip()) or None


def _split_extension(name: str) -> tuple[str, str]:
    """Return a file name without its last extension, and that in lower case; a leading dot begins none."""
    stem, dot, extension = name.rpartition(".")
    return (stem, f".{extension.lower()}") if stem and dot else (name, "")
