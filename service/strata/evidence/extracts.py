"""Whole sentences of a paragraph that does not fit, chosen by what they say of the question."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from strata.evidence.metering import cost_in_json, cost_of
from strata.evidence.model import Cost, Excerpt
from strata.evidence.policy import Extractor
from strata.text.estimate import utf8_bytes
from strata.text.paragraphs import SENTENCE_END, trim_span
from strata.text.spans import find_spans

GAP = " … "
"""Stands in an excerpted text where something was left out."""


@dataclass(frozen=True, slots=True)
class _Sentence:
    """A sentence, without the white space around it, and what it costs inside a JSON string."""

    start: int
    end: int
    cost: Cost


def excerpt_text(text: str, excerpts: Sequence[Excerpt]) -> str:
    """Return what excerpts show of a text: a mark stands for each gap, the ends' included; whole where none are."""
    if not excerpts:
        return text
    shown = GAP.join(text[item.start : item.end] for item in excerpts)
    before = GAP.lstrip() if excerpts[0].start > 0 else ""
    after = GAP.rstrip() if excerpts[-1].end < len(text) else ""
    return before + shown + after


def extractor(weights: Mapping[str, float], languages: Sequence[str] = ()) -> Extractor:
    """Return the function that chooses excerpts by the weights of analysed terms.

    ``languages`` are those of the texts; none given, each text's own words vote.
    """

    def extract(text: str, room: Cost) -> tuple[Excerpt, ...]:
        return extract_sentences(text, room, weights, languages)

    return extract


def extract_sentences(
    text: str, room: Cost, weights: Mapping[str, float], languages: Sequence[str] = ()
) -> tuple[Excerpt, ...]:
    """Return the sentences that together say the most terms by weight and fit ``room``, neighbours as one.

    Each is worth the weight of the terms that none before it says, over its size; the single sentence worth
    most stands instead where it is worth more than all chosen that way. Empty where no sentence with a term
    fits. The room is taken by the text inside a JSON string and the marks of its gaps.
    """
    gap = cost_of(GAP)
    room = Cost(room.bytes - 2 * gap.bytes, room.quarters - 2 * gap.quarters)  # both ends may have one
    sentences = [item for item in _sentences(text) if _fits(item.cost, room)]
    if not sentences:
        return ()
    said = _terms(sentences, text, weights, languages)
    best = min(
        (at for at, terms in enumerate(said) if terms),
        key=lambda at: (-_worth(said[at], weights), sentences[at].cost.quarters, at),
        default=None,
    )
    if best is None:
        return ()
    chosen = _greedy(sentences, said, weights, room, gap)
    covered = set().union(*(said[at] for at in chosen))
    if not chosen or _worth(covered, weights) < _worth(said[best], weights):
        chosen = [best]
    return _joined(text, [sentences[at] for at in sorted(chosen)])


def sentence_spans(text: str) -> Iterator[tuple[int, int]]:
    """Yield the sentences of a text without the white space around them."""
    start = 0
    for match in SENTENCE_END.finditer(text):
        yield trim_span(text, start, match.end())
        start = match.end()
    yield trim_span(text, start, len(text))


def _sentences(text: str) -> list[_Sentence]:
    return [_Sentence(start, end, cost_in_json(text[start:end])) for start, end in sentence_spans(text) if start < end]


def _fits(cost: Cost, room: Cost) -> bool:
    return cost.bytes <= room.bytes and cost.quarters <= room.quarters


def _terms(
    sentences: Sequence[_Sentence], text: str, weights: Mapping[str, float], languages: Sequence[str]
) -> list[frozenset[str]]:
    """Return the terms that each sentence says."""
    spans = find_spans(text, list(weights), languages)
    said: list[set[str]] = [set() for _ in sentences]
    at = 0
    for start, end, term in spans:
        while at < len(sentences) and sentences[at].end <= start:
            at += 1
        if at < len(sentences) and sentences[at].start <= start and end <= sentences[at].end:
            said[at].add(term)
    return [frozenset(terms) for terms in said]


def _worth(terms: frozenset[str] | set[str], weights: Mapping[str, float]) -> float:
    # Summed in one order, so that equal sets are worth the same.
    return sum(weights[term] for term in sorted(terms))


def _greedy(
    sentences: Sequence[_Sentence],
    said: Sequence[frozenset[str]],
    weights: Mapping[str, float],
    room: Cost,
    gap: Cost,
) -> list[int]:
    """Return sentences that each add the most weight for their size."""
    chosen: list[int] = []
    covered: set[str] = set()
    left = [at for at, terms in enumerate(said) if terms]
    while left:
        gains = {at: _worth(said[at] - covered, weights) for at in left}
        left = [at for at in left if gains[at] > 0 and _fits(sentences[at].cost, room)]
        if not left:
            break
        at = min(left, key=lambda at: (-gains[at] / (sentences[at].cost.quarters + gap.quarters), at))
        left.remove(at)
        chosen.append(at)
        covered |= said[at]
        cost = sentences[at].cost
        room = Cost(room.bytes - cost.bytes - gap.bytes, room.quarters - cost.quarters - gap.quarters)
    return chosen


def _joined(text: str, sentences: Sequence[_Sentence]) -> tuple[Excerpt, ...]:
    """Return the spans, those with nothing but white space between them as one."""
    spans: list[tuple[int, int]] = []
    for item in sentences:
        if spans and not text[spans[-1][1] : item.start].strip():
            spans[-1] = (spans[-1][0], item.end)
        else:
            spans.append((item.start, item.end))
    excerpts: list[Excerpt] = []
    at = at_byte = 0
    for start, end in spans:
        start_byte = at_byte + utf8_bytes(text[at:start])
        at, at_byte = end, start_byte + utf8_bytes(text[start:end])
        excerpts.append(Excerpt(start, end, start_byte, at_byte))
    return tuple(excerpts)
