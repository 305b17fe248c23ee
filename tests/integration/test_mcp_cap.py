"""Results stay within what clients take, whatever they hold, and every loss is counted."""

import asyncio
import copy
import json
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strata.evidence.model import KeyBasis, Layer
from strata.lookup.schemas import Completeness, EvidenceBlock, LookupResult, Omitted, RelevanceLevel
from strata.mcp.cap import CLIPPED_CHARS, RESULT_TOKENS, clip_text, compact, tokens
from strata.mcp.graph_tools import graph_tools
from strata.mcp.lookup_tool import lookup_answer
from strata.mcp.tools import Call, Toolbox
from strata.platform.ids import DEFAULT_TENANT

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


def answer_of(name, arguments, result):
    """What a tool makes of a result of its service."""

    async def service(_call, _context, _arguments):
        return result

    (tool,) = graph_tools(Toolbox(lookup=None, recorder=None, **{name: service}))
    call = Call(tenant=DEFAULT_TENANT, request_id=None, session_id=None, agent_id=None)
    return asyncio.run(tool.run(call, tool.read({"context": "c", **arguments})))


def item(number, text, cited):
    return {
        "candidate_id": f"passage\0{number}",
        "citation_refs": [{"source": "s", "paragraph": paragraph} for paragraph in cited],
        "passage": {"text": text},
    }


ITEMS = st.lists(st.tuples(TEXTS, st.lists(st.integers(0, 5), max_size=3, unique=True)), max_size=12)


@given(ITEMS, st.lists(TEXTS, min_size=6, max_size=6), st.integers(0, 20), st.integers(0, 40), TEXTS)
def test_a_package_fits_with_its_best_items_and_their_citations(drawn, cited, omitted, anchors, name):
    items = [item(number, *each) for number, each in enumerate(drawn)]
    places = sorted({ref["paragraph"] for each in items for ref in each["citation_refs"]})
    package = {
        "items": list(items),
        "citations": [{"source": "s", "paragraph": at, "citation": {"text": cited[at]}} for at in places],
        "budget": {"items_used": len(items)},
        "omitted": [{"candidate_id": name[:1000], "reason": "budget"}] * omitted,
        "omitted_total": omitted,
        "omitted_by_reason": {"budget": omitted},
        "plan": {},
        "anchors": [{"cue": name[:1000], "name": name[:1000]}] * anchors,
    }
    whole = copy.deepcopy(package)
    answer = answer_of("assemble_evidence", {"origins": "a"}, package)
    value, body = answer.structured, json.loads(answer.text)
    assert tokens(compact(value)) <= RESULT_TOKENS
    assert tokens(answer.text) <= RESULT_TOKENS
    assert body["result"] == {key: entry for key, entry in value.items() if key != "reduced"}
    lost = value.get("reduced", {"omitted": {}})["omitted"]
    for part in ("items", "citations", "omitted", "anchors"):
        assert len(value[part]) + lost.get(part, 0) == len(whole[part])
        kept = iter(whole[part])
        assert all(entry in kept for entry in value[part]), "the order stays"
    assert {ref["paragraph"] for each in value["items"] for ref in each["citation_refs"]} == {
        entry["paragraph"] for entry in value["citations"]
    }
    assert (value["budget"], value["omitted_total"]) == (whole["budget"], omitted)
    if tokens(compact(whole)) <= RESULT_TOKENS - 400:
        assert (value, answer.evidence) == (whole, len(items))


def test_an_item_that_is_too_large_alone_leaves_room_for_the_others():
    items = [item(0, "x" * 100_000, [0]), item(1, "y" * 100, [1])]
    package = {
        "items": items,
        "citations": [{"source": "s", "paragraph": at, "citation": {"text": "t"}} for at in (0, 1)],
        "omitted": [],
    }
    value = answer_of("assemble_evidence", {"origins": "a"}, package).structured
    assert [each["candidate_id"] for each in value["items"]] == ["passage\x001"]
    assert [entry["paragraph"] for entry in value["citations"]] == [1]
    assert value["reduced"]["omitted"] == {"items": 1, "citations": 1}


@pytest.mark.parametrize("name", ["query", "activate"])
def test_a_fact_that_thousands_assert_keeps_ten_of_them(name):
    def fact(count):
        stated = [{"source": f"s{number}", "weight": 1.0, "paragraph": None} for number in range(count)]
        found = {"subject": "a", "label": "b", "object": str(count), "count": count, "attributions": stated}
        return found if name == "query" else {"strength": 1.0, "association": found}

    matches = [fact(1), fact(5000), fact(5000)]
    arguments = {"origins": "a"} if name == "activate" else {}
    value = answer_of(name, arguments, {"total": 3, "matches": matches}).structured
    facts = [match.get("association", match) for match in value["matches"]]
    assert [each["count"] for each in facts] == [1, 5000, 5000]
    assert [len(each["attributions"]) for each in facts][::2] == [1, 10]
    lost = sum(each["count"] - len(each["attributions"]) for each in facts)
    assert value["reduced"]["omitted"] == {"attributions": lost}
    assert tokens(compact(value)) <= RESULT_TOKENS


@pytest.mark.parametrize("character", ["x", "語", "🎉", "\n", "\x01", '"'])
def test_a_citation_keeps_as_much_of_its_head_as_fits(character):
    cited = {"text": character * 90_000, "source": "s", "section": None, "locator": None}
    answer = answer_of("cite_passage", {"source": "s", "paragraph": 0}, cited)
    value = answer.structured
    assert value["text"] == character * (len(value["text"]) - 1) + "…"
    assert RESULT_TOKENS - 600 < tokens(compact(value)) <= RESULT_TOKENS
    assert tokens(answer.text) <= RESULT_TOKENS
    assert (value["found"], value["reduced"]["omitted"]) == (True, {"texts": 1})


def test_an_empty_paragraph_is_found():
    cited = {"text": "", "source": "s", "section": None, "locator": None}
    assert answer_of("cite_passage", {"source": "s", "paragraph": 0}, cited).structured == {"found": True, **cited}
