"""Recorded answers and ours, side by side: where they differ, and whether a difference is one of scores."""

from __future__ import annotations

import re
from typing import Any

VOLATILE = {"time": 0.0, "server": "0.0.0", "version": "0.0.0", "last_read_epoch": 0, "last_write_epoch": 0}
"""What differs from call to call, and what stands for it in the recordings."""

CURSOR = "cf1-0000000000000000-0"
"""What stands for a position in the feed of changes."""

SCORES = re.compile(r"result\.(hits\[\]|items\[\]\.(passage|community))(\.lanes\.\w+)?\.score")
"""Where scores of a search stand."""

COUNTS = re.compile(r"result\.(items\[\]\.(bytes|estimated_tokens)|budget\.(bytes_used|tokens_used))")
"""What depends on how many digits a score has; accounting counts it again."""


def settled(value: Any) -> Any:
    """Return an answer with what is volatile blanked; raises AssertionError where its type is another."""
    if isinstance(value, list):
        return [settled(entry) for entry in value]
    if not isinstance(value, dict):
        return value
    found = {}
    for key, entry in value.items():
        if key in VOLATILE:
            blank = VOLATILE[key]
            assert isinstance(entry, type(blank)) or (isinstance(blank, float) and isinstance(entry, int)), key
            found[key] = blank
        elif key == "next" and "more" in value:
            assert isinstance(entry, str)
            assert entry
            found[key] = CURSOR
        else:
            found[key] = settled(entry)
    return found


def differences(recorded: Any, ours: Any, path: str = "") -> list[str]:
    """Return the paths at which two values differ, ``[]`` standing for any place of a list."""
    if isinstance(recorded, dict) and isinstance(ours, dict):
        found = []
        for key in sorted({*recorded, *ours}):
            at = f"{path}.{key}" if path else key
            if key in recorded and key in ours:
                found += differences(recorded[key], ours[key], at)
            else:
                found.append(at)
        return sorted(set(found))
    if isinstance(recorded, list) and isinstance(ours, list):
        if len(recorded) != len(ours):
            return [f"{path}[]"]
        pairs = zip(recorded, ours, strict=True)
        return sorted({at for left, right in pairs for at in differences(left, right, f"{path}[]")})
    same_type = isinstance(recorded, bool) == isinstance(ours, bool)
    return [] if same_type and recorded == ours else [path]


def is_of_scores(path: str) -> bool:
    """Say whether a path is a score of a search, or a count of the digits of scores."""
    return bool(SCORES.fullmatch(path) or COUNTS.fullmatch(path))


def check_scores(result: dict[str, Any]) -> None:
    """Assert that scores are above 0 and in the order of their ranks."""
    hits = result.get("hits") or [item["passage"] for item in result.get("items", ()) if "passage" in item]
    assert all(hit["score"] > 0 for hit in hits)
    by_rank = sorted(
        (lane["rank"], -lane["score"]) for hit in hits for name, lane in hit.get("lanes", {}).items() if name == "bm25"
    )
    assert [score for _, score in by_rank] == sorted(score for _, score in by_rank)
