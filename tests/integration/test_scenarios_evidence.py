"""The scenarios of openspec/specs/evidence-blocks over the real services."""

from __future__ import annotations

import re
from hashlib import sha256

import msgspec
import pytest

from scenario_support import CONTEXT, ask, doc, prose, put, row_of, sources
from strata.hints.schemas import HintInput
from strata.lookup.schemas import BudgetRequest
from strata.platform.ids import DEFAULT_TENANT
from strata.services import compose

AUDIT = doc("security/audit.md", "# Audit log\n\n## Retention\n\nAudit logs are kept for 400 days, then deleted.\n")
REASON = re.compile(
    r"(L0_EXACT|L0_ALIAS|L0_PREFIX|L0_KEYWORD|L0_HINT_BOOST|CATEGORY_FILTER_RELAXED|FALLBACK_L1_ONLY|FALLBACK_L0_ONLY"
    r"|FALLBACK_KEYWORD|L0_FUZZY:0\.\d\d|L1_(RANK|LEXICAL|VECTOR|GRAPH):[1-9]\d*|CATEGORY_FILTER:.+|RELATION:.+)"
)


@pytest.fixture
def composed_with(settings, database):
    """Services over the same database, with some settings changed."""

    def make(**changes):
        return compose(msgspec.structs.replace(settings, **changes), database)

    return make


def keys(result):
    return [(block.source_key, block.source_key_basis.value) for block in result.evidence_blocks]


async def test_a_passage_is_keyed_by_path_and_anchor(services):
    await put(services, AUDIT)
    assert keys(await ask(services, "audit logs kept")) == [("path:security/audit.md#retention", "PATH")]


async def test_a_key_in_the_front_matter_wins(services):
    await put(services, doc("a.md", "---\nsource_key: policy-7\n---\n# Audit\n\nAudit logs are kept.\n"))
    assert keys(await ask(services, "audit logs")) == [("policy-7", "EXPLICIT")]


async def test_a_document_without_path_is_keyed_by_its_doi(services):
    paper = doc(None, "# Paper\n\nAudit logs were measured.\n", metadata={"doi": "10.1000/x1"})
    await put(services, paper)
    ((key, basis),) = keys(await ask(services, "audit logs"))
    assert re.fullmatch(r"meta:[0-9a-f]{16}", key)
    assert basis == "METADATA"
    changed = doc(None, "# Paper\n\nAudit logs were measured again.\n", metadata={"doi": "10.1000/x1"})
    assert (await put(services, changed)).replaced == 1
    assert keys(await ask(services, "audit logs")) == [(key, basis)]


async def test_a_document_without_path_and_identity_is_keyed_by_its_title(services):
    await put(services, doc(None, "Audit logs are kept.\n", title="The Audit"))
    assert keys(await ask(services, "audit logs")) == [("title:the audit", "TITLE")]


SECTIONS = doc(
    "two.md", "# Two\n\n## North\n\nThe lighthouse of the north.\n\n## South\n\nThe lighthouse, southern one.\n"
)
LONG_SECTION = doc("long.md", f"# Long\n\n{prose('lighthouse', 24)}\n\n{prose('harbour', 24, 300)} lighthouse\n")


async def test_one_block_stands_for_a_source_where_that_is_the_granularity(services, composed_with):
    await put(services, SECTIONS)
    assert len((await ask(services, "lighthouse", layers=["L1"])).evidence_blocks) == 2
    result = await ask(composed_with(source_key_granularity="source"), "lighthouse", layers=["L1"])
    assert keys(result) == [("path:two.md", "PATH")]
    assert result.evidence_blocks[0].merged_count == 2


async def test_passages_of_one_section_stay_apart_where_that_is_the_granularity(services, composed_with):
    await put(services, LONG_SECTION)
    result = await ask(composed_with(source_key_granularity="passage"), "lighthouse", layers=["L1"])
    assert len(result.evidence_blocks) > 1
    assert len(set(keys(result))) == len(result.evidence_blocks)
    assert set(sources(result)) == {"long.md"}


async def test_passages_of_one_section_become_one_block(services):
    await put(services, LONG_SECTION)
    result = await ask(services, "lighthouse", layers=["L1"])
    assert len(result.evidence_blocks) == 1
    merged = result.evidence_blocks[0].merged_count
    assert merged >= 2
    assert result.omitted.by_reason == {"DUPLICATE_SOURCE": merged - 1}
    assert {item.duplicate_of for item in result.omitted.items} == {result.evidence_blocks[0].source_key}


async def test_a_hint_and_the_passage_it_points_to_become_one_block(services):
    await put(services, AUDIT)
    hint = HintInput(title="Log retention", aliases=["audit logs"], targets=["security/audit.md#retention"])
    await services.hints.put(DEFAULT_TENANT, CONTEXT, [hint])
    result = await ask(services, "how long are audit logs kept")
    (block,) = result.evidence_blocks
    assert [layer.value for layer in block.layers] == ["L0", "L1"]
    assert {"L0_ALIAS", "L1_RANK:1", "L1_LEXICAL:1"} <= set(block.hit_reasons)
    assert block.title == "Log retention"


async def test_equal_paths_of_two_contexts_do_not_merge(services):
    await put(services, AUDIT)
    await put(
        services,
        doc("security/audit.md", "# Audit log\n\n## Retention\n\nOur audit logs stay in the vault.\n"),
        context="b",
    )
    result = await ask(services, "audit logs", context=[CONTEXT, "b"], layers=["L1"])
    assert keys(result) == [("path:security/audit.md#retention", "PATH")] * 2
    assert len({block.content_preview for block in result.evidence_blocks}) == 2


PARAGRAPH = (
    "The deposit for a rented flat is returned within the time that the contract names, after the landlord has seen "
    "the rooms, unless the tenant owes rent or has damaged the walls, the floor or the windows of the flat."
)


async def test_copies_of_a_paragraph_become_one_block(services):
    await put(
        services,
        doc("a.txt", PARAGRAPH),
        doc("b.txt", PARAGRAPH.replace(" flat ", "  flat\n"), media_type="text/plain"),
    )
    result = await ask(services, "deposit flat", layers=["L1"])
    (block,) = result.evidence_blocks
    assert block.merged_count == 2
    (omitted,) = result.omitted.items
    assert (omitted.reason.value, omitted.duplicate_of) == ("NEAR_DUPLICATE", block.source_key)


async def test_paragraphs_that_differ_in_an_amount_are_both_returned(services):
    await put(
        services,
        doc("a.txt", f"{PARAGRAPH} It is 900 euros."),
        doc("b.txt", f"{PARAGRAPH} It is 950 euros."),
    )
    result = await ask(services, "deposit flat", layers=["L1"])
    assert set(sources(result)) == {"a.txt", "b.txt"}
    assert result.omitted.total == 0


@pytest.fixture
async def thirty_one(services):
    """31 documents on one subject, no two alike."""
    await put(
        services,
        *(doc(f"n/{n:02}.md", f"# Note\n\nThe lighthouse was painted in year {1900 + n}.\n") for n in range(31)),
    )
    return services


async def test_blocks_and_omissions_make_up_the_candidates_of_the_trace(thirty_one):
    result = await ask(thirty_one, "lighthouse painted", top_k=4)
    assert len(result.evidence_blocks) == 4
    assert sum(result.omitted.by_reason.values()) == result.omitted.total
    details = (await row_of(thirty_one, result)).retrieval_details
    assert details["postprocess"]["raw"] == 4 + result.omitted.total
    assert details["omittedTotal"] == result.omitted.total
    passages = [block["passage"] for block in details["evidenceBlocks"]] + [
        item["passage"] for item in details["omitted"]
    ]
    assert len(passages) == len(set(passages))


async def test_twenty_omissions_are_listed_and_all_are_counted(thirty_one):
    result = await ask(thirty_one, "lighthouse painted", top_k=1, layers=["L1"])
    assert result.omitted.total == 30
    assert len(result.omitted.items) == 20
    assert result.omitted.by_reason == {"BELOW_TOP_K": 30}


@pytest.mark.parametrize("max_bytes", [500, 2500, 6000])
async def test_the_bytes_used_are_those_of_the_json_that_is_sent(thirty_one, max_bytes):
    result = await ask(thirty_one, "lighthouse painted", top_k=10, budget=BudgetRequest(max_bytes=max_bytes))
    sent = msgspec.json.encode(result.evidence_blocks)
    assert len(sent) == result.budget.bytes_used <= max_bytes
    assert result.budget.items_used == len(result.evidence_blocks)


async def test_a_budget_of_nothing_gives_nothing_and_accounts_for_all(thirty_one):
    result = await ask(thirty_one, "lighthouse painted", budget=BudgetRequest(max_items=0))
    assert result.evidence_blocks == []
    assert result.omitted.by_reason["BUDGET_EXCEEDED"] == result.omitted.total
    raw = (await row_of(thirty_one, result)).retrieval_details["postprocess"]["raw"]
    assert result.omitted.total == raw > 30


async def test_ranks_have_no_gap_and_scores_stay_between_0_and_1(thirty_one):
    result = await ask(thirty_one, "lighthouse painted", top_k=7)
    assert [block.rank for block in result.evidence_blocks] == list(range(1, 8))
    assert all(0 < block.score <= 1 for block in result.evidence_blocks)


async def test_the_preview_holds_words_that_stand_late(services):
    await put(
        services, doc("late.md", f"# Late\n\n{prose('clerk', 28)} At last the zebrafish arrived. {prose('end', 2)}\n")
    )
    (block,) = (await ask(services, "zebrafish", layers=["L1"])).evidence_blocks
    assert "zebrafish" in block.content_preview
    assert block.content_preview.startswith("…")
    assert len(block.content_preview) <= 600


async def test_content_is_null_unless_asked_for(services):
    await put(services, AUDIT)
    assert (await ask(services, "audit logs")).evidence_blocks[0].content is None
    with_budget = await ask(services, "audit logs", budget=BudgetRequest(max_items=3), content=False)
    assert with_budget.evidence_blocks[0].content is None


async def test_content_is_the_text_of_the_passage(services):
    await put(services, AUDIT)
    (block,) = (await ask(services, "audit logs", content=True, layers=["L1"])).evidence_blocks
    cited = block.citation
    text = await services.sources.read_text(DEFAULT_TENANT, CONTEXT, cited.source, cited.start_byte, cited.end_byte)
    assert block.content == text.text


async def test_the_hash_of_a_citation_is_that_of_its_bytes(services):
    await put(services, AUDIT, doc("jp.md", "# 監査\n\n監査ログは四百日のあいだ保存される。😀\n"), LONG_SECTION)
    for query in ("audit logs", "監査ログ", "lighthouse"):
        result = await ask(services, query, top_k=10)
        assert result.evidence_blocks
        for block in result.evidence_blocks:
            cited = block.citation
            part = await services.sources.read_text(
                DEFAULT_TENANT, CONTEXT, cited.source, cited.start_byte, cited.end_byte
            )
            assert (part.start_byte, part.end_byte, part.revision) == (
                cited.start_byte,
                cited.end_byte,
                cited.source_version,
            )
            assert sha256(part.text.encode()).hexdigest() == cited.sha256


async def test_a_hint_that_answers_by_its_summary_cites_nothing(services):
    await put(services, AUDIT)
    await services.hints.put(DEFAULT_TENANT, CONTEXT, [HintInput(title="Canteen", summary="Lunch is served at noon.")])
    (block,) = (await ask(services, "canteen")).evidence_blocks
    assert block.citation is None
    assert block.content_preview == "Lunch is served at noon."


async def test_a_passage_of_one_lane_has_the_reasons_of_that_lane(services):
    await put(services, AUDIT)
    (block,) = (await ask(services, "audit logs kept", layers=["L1"])).evidence_blocks
    assert block.hit_reasons == ["L1_RANK:1", "L1_LEXICAL:1"]
    assert [(place.lane, place.rank) for place in block.lane_ranks] == [("lexical", 1)]


async def test_every_reason_keeps_to_the_grammar(services):
    await put(
        services,
        doc("hr/leave.md", "# Leave\n\n## Vacation\n\nVacation is thirty days.\n", category="hr"),
        doc("it.md", "# Laptop\n\nOn vacation the laptop stays here.\n", category="it"),
    )
    hints = [
        HintInput(
            title="Annual leave", aliases=["vacation"], keywords=["days"], targets=["hr/leave.md"], category="hr"
        ),
        HintInput(title="Vacations", targets=["it.md"]),
    ]
    await services.hints.put(DEFAULT_TENANT, CONTEXT, hints)
    seen = set()
    for query, category in (("vacation days", "hr"), ("vacation", None), ("vacatons", None), ("vac", None)):
        for block in (await ask(services, query, category=category)).evidence_blocks:
            assert len(block.hit_reasons) == len(set(block.hit_reasons))
            assert all(REASON.fullmatch(reason) for reason in block.hit_reasons), block.hit_reasons
            seen.update(reason.partition(":")[0] for reason in block.hit_reasons)
    assert {"L0_ALIAS", "L0_PREFIX", "L0_KEYWORD", "L0_FUZZY", "L1_RANK", "CATEGORY_FILTER"} <= seen


async def test_the_supplement_holds_the_further_blocks_under_their_titles(thirty_one):
    result = await ask(thirty_one, "lighthouse painted", top_k=3, content=True, layers=["L1"])
    first, *others = result.evidence_blocks
    assert result.primary == first.content
    assert result.supplement.split("\n\n")[0].startswith("Note")
    assert all(block.content.strip() in result.supplement for block in others)
    assert first.content not in result.supplement


async def test_one_block_has_no_supplement(thirty_one):
    result = await ask(thirty_one, "lighthouse painted", top_k=1)
    assert result.primary
    assert result.supplement is None
