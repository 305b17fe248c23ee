"""What lanes nominate for an evidence package, as candidates: associations, passages, communities."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from strata.evidence.model import Attribution, Candidate, Fact, KeyBasis, LaneRank, Layer, Locator

ASSOCIATION = "association"
PASSAGE = "passage"
COMMUNITY = "community"


def association(
    fact: Fact,
    attributions: Sequence[Attribution],
    place: LaneRank,
    *,
    context: str = "",
    is_qualified: bool = False,
    citable: Iterable[tuple[str, int]] = (),
    payload: object = None,
) -> Candidate:
    """Return the candidate of a fact; its text is what a reranker reads.

    ``citable`` holds the (source, paragraph) pairs that can be shown; of these, what the attributions
    name is cited. ``is_qualified`` puts the context into the key, for packages over several.
    """
    named = {(item.source, item.paragraph) for item in attributions if item.paragraph is not None}
    found = _candidate(
        ASSOCIATION, (context, *fact) if is_qualified else fact, primary_source(attributions), " ".join(fact), place
    )
    return replace(
        found,
        scope=context,
        fact=fact,
        attributions=tuple(attributions),
        citation_refs=tuple(sorted(Locator(*pair, context) for pair in set(citable) & named)),
        payload=payload,
    )


def passage(
    context: str, source: str, paragraph: int, text: str, place: LaneRank, *, payload: object = None
) -> Candidate:
    """Return the candidate of a paragraph."""
    found = _candidate(PASSAGE, (context, source, str(paragraph)), source, text, place)
    return replace(found, scope=context, paragraph=paragraph, payload=payload)


def community(
    context: str, source: str, paragraph: int, text: str, place: LaneRank, *, payload: object = None
) -> Candidate:
    """Return the candidate of a community's summary, which is no paragraph that an item could cite."""
    found = _candidate(COMMUNITY, (context, source, str(paragraph)), source, text, place)
    return replace(found, scope=context, payload=payload)


def _candidate(kind: str, parts: Iterable[str], source: str, text: str, place: LaneRank) -> Candidate:
    key = "\0".join(parts)
    return Candidate(
        kind=kind,
        key=key,
        layer=Layer.L1,
        layers=(Layer.L1,),
        source_key=f"{kind}\0{key}",
        source_key_basis=KeyBasis.EXPLICIT,
        source=source,
        title="",
        text=text,
        lane_ranks=(place,),
    )


def primary_attribution(attributions: Iterable[Attribution]) -> Attribution | None:
    """Return the attribution that says the most: the largest weight without its sign.

    Ties go to the smallest source, then to one with a paragraph, then to the smallest paragraph. None
    where no source is named.
    """
    return min(
        (item for item in attributions if item.source),
        key=lambda item: (-abs(item.weight), item.source, item.paragraph is None, item.paragraph or 0),
        default=None,
    )


def primary_source(attributions: Iterable[Attribution]) -> str:
    """Return the source of the primary attribution, empty where no source is named."""
    primary = primary_attribution(attributions)
    return primary.source if primary else ""
