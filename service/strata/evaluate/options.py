"""What a run may ask of the assembly beyond what the eval and the budget say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from strata.assembly.schemas import EvidenceRequest
from strata.errors import INVALID_REQUEST, StrataError

ASSEMBLY_OPTIONS = (
    "labels",
    "object_facts",
    "dice_floor",
    "resolve_limit",
    "anchor_floor",
    "activate_decay",
    "activate_limit",
    "include_communities",
    "share_text",
    "contradictions",
    "numeric_conflicts",
    "extracts",
)
"""Fields of the evidence request; the others come from the case, or would change what is measured."""


def parse_options(text: str) -> Mapping[str, Any]:
    """Return the options of a JSON object; raises ``invalid_request`` for a field or value that is none."""
    try:
        given = msgspec.json.decode(text, type=dict[str, Any])
    except (ValueError, UnicodeEncodeError) as error:
        raise _refused(f"This is no JSON object: {error}.") from error
    unknown = [name for name in given if name not in ASSEMBLY_OPTIONS]
    if unknown:
        raise _refused(f"{unknown[0]!r} is no option; there are {', '.join(ASSEMBLY_OPTIONS)}.")
    try:
        msgspec.convert({"origins": [], **given}, EvidenceRequest)
    except msgspec.ValidationError as error:
        raise _refused(f"{error}.") from error
    return given


def _refused(detail: str) -> StrataError:
    remedy = 'Give an object such as {"share_text": true, "extracts": true}.'
    return StrataError(INVALID_REQUEST, detail, pointer="--assembly-options", remedy=remedy)
