"""Bytes to text, and text to text that Postgres, JSON and UTF-8 can hold, with every change counted."""

from __future__ import annotations

import codecs
import datetime as dt
import math
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

MAX_JSON_DEPTH = 32
MAX_JSON_NODES = 20_000
_T = TypeVar("_T")
_INT64 = 2**63
_SAMPLE_BYTES = 64 * 1024

_SPLIT_PAIR = re.compile("([\ud800-\udbff])([\udc00-\udfff])")
_SURROGATE = re.compile("[\ud800-\udfff]")
_ESCAPED_BYTES = re.compile("[\udc80-\udcff]+")
_UGLY = re.compile("[\x00-\x08\x0b-\x1f\x7f\ufeff\ud800-\udfff]")
_CONTROL = re.compile("[\x01-\x08\x0e-\x1f\x7f]")
_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
# Labels that pages declare by habit: bytes that are valid UTF-8 are UTF-8 whatever these say.
_HABITUAL = frozenset({"ascii", "iso8859-1", "cp1252", "iso8859-15"})
# UTF-7 and the binary transforms decode anything into something nobody wrote.
_UNTRUSTED = frozenset({"utf-7", "unicode_escape", "raw_unicode_escape", "idna", "punycode", "mbcs", "undefined"})


@dataclass(frozen=True, slots=True)
class Normalised:
    """A text fit to be stored, and what was taken away or replaced, by name."""

    text: str
    changes: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Decoded:
    """Bytes as text (not yet normalised), the encoding they were read with, and what was lost."""

    text: str
    encoding: str
    changes: Mapping[str, int] = field(default_factory=dict)


def add_changes(total: dict[str, int], changes: Mapping[str, int]) -> None:
    """Add the counts of ``changes`` into ``total``."""
    for name, count in changes.items():
        total[name] = total.get(name, 0) + count


def normalise_text(text: str) -> Normalised:
    """Make a text storable without changing what its author wrote.

    NUL (``nul``), byte order marks anywhere (``bom``), lone surrogates (``lone_surrogates``) and
    other C0 controls but tab and newline (``controls``) are removed; form feeds and vertical tabs
    become newlines, counted as controls too; CRLF and CR become LF (``carriage_returns``); split
    surrogate pairs are joined again (``split_pairs``). Everything else stays: no Unicode form is
    applied, bidi marks and joiners are kept. Normalising twice changes nothing.
    """
    if not _UGLY.search(text):
        return Normalised(text)
    changes: dict[str, int] = {}

    def replace(name: str, old: str, new: str) -> None:
        nonlocal text
        if count := text.count(old):
            changes[name] = changes.get(name, 0) + count
            text = text.replace(old, new)

    replace("nul", "\x00", "")
    replace("bom", "\ufeff", "")
    text, controls = _CONTROL.subn("", text)
    _count(changes, "controls", controls)
    replace("controls", "\f", "\n")
    replace("controls", "\v", "\n")
    replace("carriage_returns", "\r\n", "\n")
    replace("carriage_returns", "\r", "\n")
    text, pairs = _SPLIT_PAIR.subn(_join_pair, text)
    _count(changes, "split_pairs", pairs)
    text, lone = _SURROGATE.subn("", text)
    _count(changes, "lone_surrogates", lone)
    return Normalised(text, changes)


def decode_bytes(data: bytes, declared: str | None = None) -> Decoded:
    """Decode bytes: byte order mark, declared charset, UTF-8, a guess from the bytes, then Windows-1252.

    A text that is UTF-8 but for a few bytes is read as UTF-8; each byte that cannot be decoded is
    counted as ``undecodable_bytes`` and shows as U+FFFD. An unknown ``declared`` name is ignored.
    """
    for bom, encoding in _BOMS:
        if data.startswith(bom):
            return _lenient(data[len(bom) :], encoding, {"bom": 1})
    if wide := _wide_encoding(data):
        return _lenient(data, wide, {})
    declared = _known_codec(declared)
    if declared and declared not in _HABITUAL:
        try:
            return Decoded(data.decode(declared), declared)
        except (UnicodeError, ValueError):
            pass
    try:
        return Decoded(data.decode("utf-8"), "utf-8")
    except UnicodeDecodeError:
        pass
    as_utf8 = _lenient(data, "utf-8", {})
    if _mostly_utf8(as_utf8):
        return as_utf8
    return _lenient(data, declared or _guess(data), {})


def clean_json(value: object, changes: dict[str, int] | None = None, *, max_depth: int = MAX_JSON_DEPTH) -> object:
    """Return ``value`` as JSON that Postgres takes: strings and keys normalised, dates as ISO strings.

    Infinite floats and NaN become None, integers beyond 64 bits become strings, unknown types their
    ``str``. What is nested deeper than ``max_depth``, or lies beyond the first 20,000 values, becomes
    None and is counted as ``metadata_cut``. Counts are added into ``changes`` when given. When two
    keys become equal the later wins.
    """
    return _JsonCleaner(changes if changes is not None else {}, max_depth).clean(value, 0)


class _JsonCleaner:
    """One walk over one value, with the budget that stops aliases from multiplying."""

    def __init__(self, changes: dict[str, int], max_depth: int) -> None:
        self.changes = changes
        self.max_depth = max_depth
        self.nodes = 0

    def clean(self, value: object, depth: int) -> object:
        self.nodes += 1
        if depth > self.max_depth or self.nodes > MAX_JSON_NODES:
            _count(self.changes, "metadata_cut", 1)
            return None
        if isinstance(value, Mapping):
            return {self.string(key): self.clean(item, depth + 1) for key, item in self.within(value.items())}
        if isinstance(value, (list, tuple, set, frozenset)):
            ordered = sorted(value, key=str) if isinstance(value, (set, frozenset)) else list(value)
            return [self.clean(item, depth + 1) for item in self.within(ordered)]
        return self.scalar(value)

    def within(self, items: Collection[_T]) -> list[_T]:
        """Cut a collection to what is left of the budget."""
        listed = list(items)
        room = max(0, MAX_JSON_NODES - self.nodes)
        _count(self.changes, "metadata_cut", len(listed) - room if len(listed) > room else 0)
        return listed[:room]

    def scalar(self, value: object) -> object:
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, int):
            return value if -_INT64 <= value < _INT64 else str(value) if value.bit_length() < 4096 else None
        if isinstance(value, float):
            return value if math.isfinite(value) else None
        if isinstance(value, (dt.date, dt.time)):
            return value.isoformat()
        return self.string(value)

    def string(self, value: object) -> str:
        if isinstance(value, bytes):
            value = value.decode("utf-8", "replace")
        if isinstance(value, bool) or value is None:
            value = {True: "true", False: "false", None: "null"}[value]
        normalised = normalise_text(value if isinstance(value, str) else str(value))
        add_changes(self.changes, normalised.changes)
        return normalised.text


def _count(changes: dict[str, int], name: str, count: int) -> None:
    if count > 0:
        changes[name] = changes.get(name, 0) + count


def _join_pair(match: re.Match[str]) -> str:
    high, low = ord(match[1]), ord(match[2])
    return chr(0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00))


def _known_codec(name: str | None) -> str | None:
    if not name:
        return None
    try:
        info = codecs.lookup(name.strip().strip("\"'"))
    except (LookupError, ValueError):
        return None
    if info.name in _UNTRUSTED or not info._is_text_encoding:  # noqa: SLF001  no public name tells text codecs apart
        return None
    return "cp1252" if info.name in {"ascii", "iso8859-1"} else info.name


def _lenient(data: bytes, encoding: str, changes: dict[str, int]) -> Decoded:
    """Decode with one U+FFFD for each run of bytes that cannot be read, counting the bytes."""
    try:
        return Decoded(data.decode(encoding), encoding, changes)
    except UnicodeDecodeError:
        pass
    if encoding.startswith(("utf-16", "utf-32")):
        text = data.decode(encoding, "replace")
        lost = text.count("\ufffd")
        return Decoded(text, encoding, {**changes, "undecodable_bytes": lost})
    text = data.decode(encoding, "surrogateescape")
    lost = sum(len(run) for run in _ESCAPED_BYTES.findall(text))
    return Decoded(_ESCAPED_BYTES.sub("\ufffd", text), encoding, {**changes, "undecodable_bytes": lost})


def _mostly_utf8(decoded: Decoded) -> bool:
    lost = decoded.changes.get("undecodable_bytes", 0)
    sample = decoded.text[:_SAMPLE_BYTES]
    good = sum(1 for char in sample if char > "\x7f" and char != "\ufffd")
    return good > 0 and lost * 5 <= good * max(1, len(decoded.text) // max(1, len(sample)))


def _wide_encoding(data: bytes) -> str | None:
    """Tell UTF-16 without a mark by where its zero bytes stand; None when they do not tell."""
    sample = data[:2048]
    half = len(sample) // 2
    if half < 4 or len(data) % 2:
        return None
    even, odd = sample[0::2].count(0), sample[1::2].count(0)
    if odd > half * 0.4 and even == 0:
        return "utf-16-le"
    if even > half * 0.4 and odd == 0:
        return "utf-16-be"
    return None


def _guess(data: bytes) -> str:
    from charset_normalizer import from_bytes

    sample = data[:_SAMPLE_BYTES]
    japanese = _japanese(sample)
    if japanese:
        return japanese
    matches = from_bytes(sample)
    best = matches.best()
    if best is None:
        return "cp1252"
    # Where the bytes do not tell Windows' code pages apart, the Western one is the commonest.
    if any(
        match.encoding == "cp1252" and (match.chaos, match.coherence) == (best.chaos, best.coherence)
        for match in matches
    ):
        return "cp1252"
    return _known_codec(best.encoding) or "cp1252"


def _japanese(sample: bytes) -> str | None:
    """Return the Japanese encoding in which the sample shows kana or kanji and nothing stray."""
    for encoding in ("cp932", "euc_jp"):
        decoder = codecs.getincrementaldecoder(encoding)()
        try:
            text = decoder.decode(sample)
        except UnicodeDecodeError:
            continue
        wide = [char for char in text if char > "\x7f"]
        kana = sum(1 for char in wide if "\u3040" <= char <= "\u30ff")
        half_width = sum(1 for char in wide if "\uff61" <= char <= "\uff9f")
        if wide and kana * 10 >= len(wide) and half_width * 10 <= len(wide):
            return encoding
    return None
