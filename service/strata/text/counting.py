"""The tokens that a model's own tokenizer makes of a text, beside the estimate of :mod:`strata.text.estimate`.

The vocabularies come inside a package (bpe-openai, which binds GitHub's Rust tokenizer of that name);
nothing is downloaded. Each takes about 50 ms and 70 MB on its first use, and stays.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from types import ModuleType
from typing import Protocol

_PACKAGE = "bpe_openai"

_ENCODINGS: dict[str, tuple[str, ...]] = {
    "cl100k_base": (
        "gpt-3.5-turbo",
        "gpt-35-turbo",
        "gpt-4",
        "text-embedding-3-large",
        "text-embedding-3-small",
        "text-embedding-ada-002",
    ),
    "o200k_base": (
        "chatgpt-4o",
        "gpt-4.1",
        "gpt-4.5",
        "gpt-4o",
        "gpt-5",
        "gpt-oss",
        "o1",
        "o3",
        "o4-mini",
    ),
    "voyage3_base": ("voyage-3",),
}
"""Families of models by encoding. Sizes and dated releases of a family share its vocabulary."""

_FAMILIES = {name: encoding for encoding, names in _ENCODINGS.items() for name in names}
_ALONE = {"voyage-3"}
"""Families whose name must stand alone: what is called voyage-3.5 or voyage-3-lite need not share it."""

_MODEL = re.compile(r"(?:openai/|ft:)?([a-z0-9][a-z0-9._-]{0,127})(?::.*)?", re.DOTALL)


class _Tokenizer(Protocol):
    def count(self, text: str) -> int: ...


class Counter:
    """Counts tokens in one encoding. May be used from several threads at once."""

    def __init__(self, encoding: str) -> None:
        self.encoding = encoding
        """The name of the vocabulary, as ``o200k_base``."""

    def count(self, texts: Iterable[str]) -> int:
        """Return the tokens of all texts together, each text by itself; of no texts, 0.

        What looks like a control token (``<|endoftext|>``) is text. A lone surrogate counts as U+FFFD.
        Takes about 25 ms for a mebibyte, and no other thread of Python runs meanwhile.
        """
        tokenizer = _tokenizer(self.encoding)
        return sum(tokenizer.count(_well_formed(text)) for text in texts)


def counter_for(model: str) -> Counter | None:
    """Return the counter of a model's own tokenizer, None where that is not known; loads nothing yet.

    A name is known when it is a family or an encoding of :func:`known_models`, or such a family with more
    behind a hyphen (``gpt-4o-mini``); so is every ``gpt-5.``, and a fine-tuned model by its base
    (``ft:gpt-4o:...``). Case and a leading ``openai/`` do not matter. The vocabularies of Claude and Gemini
    are not published: they have no counter.
    """
    named = _MODEL.fullmatch(model.strip().lower())
    if named is None:
        return None
    name = named[1]
    if name in _ENCODINGS:
        return Counter(name)
    for family, encoding in _FAMILIES.items():
        if name == family or (family not in _ALONE and name.startswith(f"{family}-")):
            return Counter(encoding)
    return Counter(_FAMILIES["gpt-5"]) if name.startswith("gpt-5.") else None


def known_models() -> tuple[str, ...]:
    """Return the families and the encodings that :func:`counter_for` knows, in order of name."""
    return tuple(sorted({*_FAMILIES, *_ENCODINGS}))


@cache
def _tokenizer(encoding: str) -> _Tokenizer:
    tokenizer: _Tokenizer = _bindings().tokenizer_for_encoding(encoding)
    return tokenizer


@cache
def _bindings() -> ModuleType:
    """Load the compiled module of the package alone.

    The Python around it unpacks every vocabulary a second time when it is imported (0.4 s, 60 MB), and
    refuses texts of more than 200,000 tokens.
    """
    package = find_spec(_PACKAGE)
    spec = package and PathFinder.find_spec(f"{_PACKAGE}._bindings", package.submodule_search_locations)
    if spec is None or spec.loader is None:
        raise ImportError("The package bpe-openai is not installed, or has no compiled module.", name=_PACKAGE)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _well_formed(text: str) -> str:
    """Return the text with each lone surrogate, which no UTF-8 can hold, replaced by U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text
