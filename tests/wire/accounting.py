"""What an evidence package costs, counted again from the text of the answer."""

from __future__ import annotations

import json
from typing import Any, Self

OMITTED_SHOWN = 20


class Number(float):
    """A number with its digits as they were sent."""

    digits: str

    def __new__(cls, digits: str) -> Self:
        """Keep the digits."""
        number = super().__new__(cls, digits)
        number.digits = digits
        return number


def read(text: str) -> Any:
    """Parse JSON; fractions keep their digits."""
    return json.loads(text, parse_float=Number)


def compact(value: Any) -> str:
    """Return JSON without spaces and without escapes of what is not ASCII."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{compact(key)}:{compact(entry)}" for key, entry in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(compact(entry) for entry in value) + "]"
    if isinstance(value, Number):
        return value.digits
    return json.dumps(value, ensure_ascii=False)


def quarters(text: str) -> int:
    """Return the quarters of a token: one for an ASCII character, four for any other."""
    return sum(1 if ord(character) < 128 else 4 for character in text)


def size(text: str) -> int:
    """Return the length in UTF-8."""
    return len(text.encode("utf-8", "surrogatepass"))


def check(package: dict[str, Any]) -> None:
    """Assert that every count of a package follows from what is in it."""
    items, citations, budget = package["items"], package["citations"], package["budget"]
    texts = []
    for item in items:
        text = compact({key: value for key, value in item.items() if key not in ("bytes", "estimated_tokens")})
        assert (item["bytes"], item["estimated_tokens"]) == (size(text), -(-quarters(text) // 4)), text
        texts.append(text)
    whole = "[" + ",".join(texts) + "]" + compact(citations)
    assert budget["items_used"] == len(items)
    assert (budget["bytes_used"], budget["tokens_used"]) == (size(whole), -(-quarters(whole) // 4))
    limits = budget["limits"]
    assert budget["items_used"] <= limits["max_items"]
    # An empty package is two pairs of brackets, whatever was allowed.
    assert budget["bytes_used"] <= max(limits["max_bytes"], 4)
    assert budget["tokens_used"] <= max(limits["max_tokens"], 1)
    _check_citations(items, citations)
    _check_omitted(package)


def _place(entry: dict[str, Any]) -> tuple[str, str, int]:
    return entry.get("context", ""), entry["source"], entry["paragraph"]


def _check_citations(items: list[dict[str, Any]], citations: list[dict[str, Any]]) -> None:
    places = [_place(entry) for entry in citations]
    referred = {_place(ref) for item in items for ref in item["citation_refs"]}
    assert len(set(places)) == len(places)
    assert set(places) == referred
    ids = [item["candidate_id"] for item in items]
    assert len(set(ids)) == len(ids)
    ranks = [item["fused_rank"] for item in items]
    assert len(set(ranks)) == len(ranks)


def _check_omitted(package: dict[str, Any]) -> None:
    omitted = package["omitted"]
    assert len(omitted) == min(package["omitted_total"], OMITTED_SHOWN)
    assert sum(package["omitted_by_reason"].values()) == package["omitted_total"]
    shown: dict[str, int] = {}
    for entry in omitted:
        shown[entry["reason"]] = shown.get(entry["reason"], 0) + 1
        assert ("duplicate_of" in entry) == (entry["reason"] == "duplicate_passage")
    assert all(count <= package["omitted_by_reason"][reason] for reason, count in shown.items())
    kept = {item["candidate_id"] for item in package["items"]}
    assert kept.isdisjoint(entry["candidate_id"] for entry in omitted)
