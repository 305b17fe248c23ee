"""Results stay within what clients take, whatever they hold, and every loss is counted."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strata.evidence.model import KeyBasis, Layer
from strata.lookup.schemas import Completeness, EvidenceBlock, LookupResult, Omitted, RelevanceLevel
from strata.mcp.cap import CLIPPED_CHARS, RESULT_TOKENS, clip_text, compact, tokens
from strata.mcp.lookup_tool import lookup_answer

TEXTS = st.sampled_from(
    ["short", "x" * 3000, "語" * 5000, "line\n" * 4000, "> ### 1. quoted\n" * 300, "🎉" * 20_000, ""]
)
BLOCKS = st.lists(st.tuples(TEXTS, st.booleans()), min_size=0, max_size=12)
MESSAGE = "More may be known."


def block(rank, text, *, with_content):
    fields = dict.fromkeys(EvidenceBlock.__struct_fields__)
    fields |= {
        "rank": rank,
        "source_key": f"path:{rank}.md",
        "source_key_basis": KeyBasis.PATH,
        "source": f"{rank}.md",
        "title": f"Title {rank}",
        "breadcrumb": [],
        "layer": Layer.L1,
        "layers": [Layer.L1],
        "score": 1.0,
        "lane_ranks": [],
        "hit_reasons": [],
        "content_preview": " ".join(text[:600].split()),
        "content": text if with_content else None,
        "merged_count": 1,
        "metadata": {},
    }
    return EvidenceBlock(**fields)


def result(blocks, text=None):
    """A result as the service makes it, its Markdown included."""
    lines = []
    for each in blocks:
        lines += [f"### {each.rank}. {each.title}", "", f"`{each.source}`", ""]
        lines += [f"> {line}" for line in (each.content or each.content_preview).splitlines()] + [""]
    lines += [] if blocks else ["No evidence found.", ""]
    return LookupResult(
        lookup_id=UUID(int=1),
        found=bool(blocks),
        primary=text,
        supplement=text,
        relevance_level=RelevanceLevel.LOW,
        completeness_hint=Completeness.PARTIAL,
        completeness_message=MESSAGE,
        empty_reason=None,
        vector_coverage=None,
        evidence_blocks=blocks,
        omitted=Omitted(total=0, by_reason={}, items=[]),
        budget=None,
        markdown="\n".join([*lines, MESSAGE, ""]),
        trace_id="0" * 32,
        took_ms=1.0,
    )


@given(BLOCKS, TEXTS, st.booleans())
def test_both_forms_fit_and_tell_what_was_left_out(drawn, text, is_json):
    whole = [block(rank, given_text, with_content=has) for rank, (given_text, has) in enumerate(drawn, 1)]
    answer = lookup_answer(result(whole, text), is_json=is_json)
    value = answer.structured
    assert tokens(compact(value)) <= RESULT_TOKENS
    assert tokens(answer.text) <= RESULT_TOKENS
    kept = value["evidenceBlocks"]
    assert [each["rank"] for each in kept] == list(range(1, len(kept) + 1))
    reduced = value.get("reduced", {"blocks": 0, "contents": 0, "fields": []})
    assert len(kept) + reduced["blocks"] == len(whole)
    lost = [one for one, other in zip(kept, whole, strict=False) if one["content"] != other.content]
    assert len(lost) == reduced["contents"]
    assert all(each["content"] is None for each in lost)
    for name in ("primary", "supplement"):
        assert value[name] == (None if name in reduced["fields"] else text)
    if is_json:
        assert answer.text == compact(value)
    elif "reduced" in value:
        assert value["reduced"]["message"] in answer.text
    else:
        assert answer.text == result(whole, text).markdown


def test_a_small_result_is_sent_as_it_is():
    whole = result([block(1, "short", with_content=True)], "short")
    answer = lookup_answer(whole, is_json=False)
    assert answer.text == whole.markdown
    assert "reduced" not in answer.structured


def test_a_result_that_lost_blocks_keeps_the_message_on_the_whole():
    answer = lookup_answer(result([block(n, "x" * 9000, with_content=True) for n in range(1, 30)]), is_json=False)
    assert answer.structured["reduced"]["contents"] > 0
    assert MESSAGE in answer.text


@pytest.mark.parametrize("text", ["", "x" * CLIPPED_CHARS * 20, "語" * 9000, "🎉x" * 9000])
def test_a_clipped_text_is_the_longest_head_that_fits(text):
    clipped = clip_text(text, 4000)
    assert tokens(clipped) <= 1000
    if clipped != text:
        assert text.startswith(clipped.removesuffix("…"))
        assert tokens(clipped) >= 998
