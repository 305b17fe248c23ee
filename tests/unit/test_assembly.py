"""Packages as they are sent and recorded: what is counted is what is there, and no text goes into the trace."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from strata.assembly.nominate import Nominations, passage_out
from strata.assembly.record import details_of
from strata.assembly.render import Renderer
from strata.assembly.schemas import BudgetIn, CitationOut
from strata.assembly.service import limits_of
from strata.errors import StrataError
from strata.evidence.fusion import fuse, with_ranks
from strata.evidence.model import Attribution, Cost, Excerpt, Fact, LaneRank, Limits, Locator
from strata.evidence.model import CitationEntry as Cited
from strata.evidence.nominate import association, passage
from strata.evidence.policy import package_policy
from strata.evidence.selection import admit, deduplicate
from strata.knowledge.graph_schemas import AssociationOut, AttributionOut
from strata.lookup.search import FoundPassage
from strata.platform.ids import DEFAULT_TENANT
from wire.accounting import size

Names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=12)
SECRET = "SECRET-WORDS"


@given(
    st.one_of(st.none(), st.integers(0, 10_000)),
    st.one_of(st.none(), st.integers(0, 12_000)),
)
def test_what_is_reserved_is_taken_from_the_tokens_alone(tokens, reserve):
    limits = limits_of(BudgetIn(max_tokens=tokens, reserve_tokens=reserve))
    ceiling = 4_000 if tokens is None else tokens
    assert limits == Limits(40, 65_536, max(0, ceiling - (reserve or 0)))


def test_without_a_budget_the_defaults_hold():
    assert limits_of(None) == limits_of(BudgetIn()) == Limits(40, 65_536, 4_000)


@pytest.mark.parametrize(
    ("budget", "pointer"),
    [(BudgetIn(max_items=1_001), "/budget/max_items"), (BudgetIn(max_bytes=1_048_577), "/budget/max_bytes")],
)
def test_a_ceiling_above_what_is_served_is_pointed_at(budget, pointer):
    with pytest.raises(StrataError) as error:
        limits_of(budget)
    assert (error.value.code, error.value.pointer) == ("over_limit", pointer)


def told(names, sources):
    """A fact, as the graph shows it and as the pipeline holds it."""
    subject, label, object_ = names
    shown = [
        AttributionOut(source=source, weight=1.0, count=1, paragraph=paragraph, section=None, locator=None)
        for source, paragraph in sources
    ]
    payload = AssociationOut(
        subject=subject, label=label, object=object_, weight=1.0, count=max(1, len(shown)), attributions=shown
    )
    return association(
        Fact(subject, label, object_),
        [Attribution(source, paragraph) for source, paragraph in sources],
        LaneRank("graph_activate", 1),
        context="kb",
        citable=[(source, paragraph) for source, paragraph in sources if paragraph is not None],
        payload=payload,
    )


def found(source, paragraph, text):
    """A passage, as the search shows it and as the pipeline holds it."""
    place = LaneRank("lexical", 1, 0.1)
    hit = FoundPassage(DEFAULT_TENANT, 1, source, paragraph, text, 0.1, place, None)
    return passage("kb", source, paragraph, text, LaneRank("passage_bm25", 1, 0.1), payload=passage_out(hit))


facts = st.builds(
    told,
    st.tuples(Names, Names, Names),
    st.lists(st.tuples(Names, st.one_of(st.none(), st.integers(0, 9))), max_size=4, unique_by=lambda pair: pair[0]),
)
texts = st.builds(found, Names, st.integers(0, 9), st.text(st.characters(exclude_categories=["Cs"]), max_size=60))


@given(st.one_of(facts, texts), st.booleans())
def test_an_item_is_counted_by_what_is_sent_without_its_counts(candidate, qualified):
    renderer = Renderer({}, is_qualified=qualified)
    counted = renderer.item_json(candidate, 1)
    item = renderer.item(candidate, Cost(size(counted), 7))
    assert (item.bytes, item.estimated_tokens) == (size(counted), 2)
    bare = msgspec.structs.replace(item, bytes=UNSET, estimated_tokens=UNSET)
    assert msgspec.json.encode(bare).decode() == counted
    sent = msgspec.json.decode(counted)
    assert sent["candidate_id"] == candidate.candidate_id
    assert ("context" in sent) is qualified
    assert all(("context" in ref) is qualified for ref in sent["citation_refs"])


def test_an_extract_shows_its_spans_with_a_mark_for_each_gap():
    text = "Eins. Zwei größer. Drei."
    candidate = msgspec.structs.replace(found("a.md", 0, text), excerpts=(Excerpt(6, 18, 6, 20),))
    item = Renderer({}, is_qualified=False).item(candidate, Cost())
    assert item.passage.text == "… Zwei größer. …"
    assert (item.extract.spans, item.extract.of_bytes) == ([(6, 20)], size(text))
    assert text.encode()[6:20].decode() == "Zwei größer."


def test_a_citation_that_an_item_holds_refers_to_it():
    locator = Locator("a.md", 0, "kb")
    renderer = Renderer({locator: CitationOut(text="T", source="a.md", section="S", locator=None)}, is_qualified=False)
    whole = msgspec.json.decode(renderer.citation_json(Cited(locator)))
    held = msgspec.json.decode(renderer.citation_json(Cited(locator, "passage\0x")))
    assert whole["citation"] == {"text": "T", "source": "a.md", "section": "S", "locator": None}
    assert held["citation"] == {"text_in": "passage\0x", "source": "a.md", "section": "S", "locator": None}


@given(st.lists(st.one_of(facts, texts), max_size=12), st.integers(0, 6))
def test_the_trace_holds_every_candidate_once_and_no_text(candidates, most):
    candidates = [*candidates, found("secret.md", 0, SECRET)]
    renderer = Renderer(_texts(candidates), is_qualified=False)
    policy = package_policy(Limits(most, 65_536, 4_000))
    survivors = deduplicate(with_ranks(fuse(candidates)), policy, len(candidates))
    package = admit(survivors, policy, renderer.item_json, renderer.citation_json)
    details = details_of([], Nominations(), package)
    keys = [block.source_key for block in details.evidence_blocks] + [item.source_key for item in details.omitted]
    assert len(keys) == details.postprocess.raw == len({candidate.identity for candidate in candidates})
    assert sum(details.postprocess.omitted_by_reason.values()) == len(details.omitted) == details.omitted_total
    encoded = msgspec.json.encode(details).decode()
    assert "\\u0000" not in encoded
    assert SECRET not in encoded


def _texts(candidates):
    return {
        locator: CitationOut(text="cited", source=locator.source, section=None, locator=None)
        for candidate in candidates
        for locator in candidate.citation_refs
    }
