"""What users of such systems ran into, as tests: each names the need, with a small input and the right outcome."""

from __future__ import annotations

import asyncio
from uuid import uuid4

import asyncpg
import pytest

from scenario_support import CALLER, ask, doc, put, sources
from strata.errors import StrataError
from strata.lookup.schemas import EmptyReason, Lane, LookupRequest
from strata.platform.ids import DEFAULT_TENANT
from strata.sources.model import DocumentInput
from strata.traces.schemas import Stage

pytestmark = pytest.mark.database


async def test_user_text_is_never_query_syntax(services):
    await put(
        services,
        doc("rd.md", "# Research\n\nThe R&D budget of AT&T covers cost estimates."),
        doc("other.md", "# Other\n\nA note about the cost of paper."),
    )
    result = await ask(services, 'AT&T | "R&D" !cost:* (a|b) <-> \'')
    assert sources(result)[0] == "rd.md"


@pytest.mark.parametrize(
    "query",
    [
        "What's your password policies?",
        "Message: {0}, StackTrace: {1}",
        "100% of _ and \\ '; DROP TABLE passage; --",
        "&|!:*()<->",
        "[1,2",
        "NaN",
        "\u202eright to left\u202c",
        "e\u0301" * 50,
        "🙂🙂",
    ],
)
async def test_odd_questions_are_answered_and_not_refused(services, query):
    await put(services, doc("policy.md", "# Policies\n\nPassword policies: message, stack trace and tables."))
    result = await ask(services, query)
    assert isinstance(result.found, bool)


async def test_an_apostrophe_finds_the_policies(services):
    await put(services, doc("policy.md", "# Security\n\nOur password policy asks for twelve characters."))
    assert sources(await ask(services, "What's your password policies?")) == ["policy.md"]


async def test_braces_of_a_log_line_are_words_like_others(services):
    await put(services, doc("log.md", "# Log\n\nMessage: {0}, StackTrace: {1} is our log format."))
    assert sources(await ask(services, "Message: {0}, StackTrace: {1}")) == ["log.md"]


async def test_the_language_of_the_corpus_counts_on_both_sides(services):
    await put(
        services,
        doc("eglise.md", "L'église du village est très ancienne et les cloches sonnent.", language="fr"),
        doc("eg.md", "Une note eg sur autre chose.", language="fr"),
    )
    assert sources(await ask(services, "eglise")) == ["eglise.md"]


async def test_a_part_number_in_one_passage_is_above_the_floor(services):
    await put(
        services,
        *(doc(f"filler-{n}.md", f"Spare part catalogue page {n} with many other parts.") for n in range(20)),
        doc("sku.md", "The spare part ZX-81-Q fits the old housing."),
    )
    assert sources(await ask(services, "Where is ZX-81-Q?"))[0] == "sku.md"


async def test_the_cjk_part_of_a_mixed_question_is_searched(services):
    await put(services, doc("deploy.md", "关于部署的说明。"), doc("other.md", "天气很好。"))
    assert "deploy.md" in sources(await ask(services, "go 部署 deployment"))


@pytest.mark.parametrize("query", ["止损", "适者生存"])
async def test_two_character_words_and_mid_run_substrings_hit(services, query):
    await put(services, doc("a.md", "交易时必须设置止损位。"), doc("b.md", "自然选择即适者生存的道理。"))
    expected = "a.md" if query == "止损" else "b.md"
    assert sources(await ask(services, query))[0] == expected


async def test_full_width_forms_are_the_same_as_half_width_ones(services):
    await put(services, doc("auth.md", "Cloudflare 認証の設定手順。"), doc("other.md", "別の話。"))
    wide = await ask(services, "Ｃｌｏｕｄｆｌａｒｅ　認証")
    narrow = await ask(services, "Cloudflare 認証")
    assert sources(wide) == sources(narrow) == ["auth.md"]
    assert [b.score for b in wide.evidence_blocks] == [b.score for b in narrow.evidence_blocks]


async def test_a_document_that_two_lanes_find_is_one_block_with_two_ranks(services):
    await put(services, doc("leave.md", "# Parental leave\n\nParental leave lasts sixteen weeks."))
    result = await ask(services, "Parental leave")
    (block,) = result.evidence_blocks
    assert {item.lane for item in block.lane_ranks} >= {"lexical", "hints"}


async def test_near_copies_leave_room_for_the_different_answer(services):
    text = "To reset your password open the account page, choose security and follow the link that we send by mail"
    await put(
        services,
        *(doc(f"v{n:02}.md", f"{text}{'.' * (n + 1)}") for n in range(20)),
        doc("admin.md", "An administrator can reset the password of a locked account in the console."),
    )
    result = await ask(services, "reset password account", top_k=5)
    assert "admin.md" in sources(result)
    assert result.omitted.by_reason["NEAR_DUPLICATE"] == 19


async def test_the_same_file_in_two_tenants_is_two_documents(services, dsn):
    other = await other_tenant(dsn)
    same = [DocumentInput(content="# Shared\n\nThe very same bytes.", path="same.md")]
    for tenant in (DEFAULT_TENANT, other):
        await services.sources.ingest(tenant, "kb", same)
    await services.sources.delete(DEFAULT_TENANT, "kb", "same.md")
    assert (await ask(services, "same bytes", context="kb")).found is False
    kept = await services.lookup.lookup(other, LookupRequest(query="same bytes", context="kb"), CALLER)
    assert sources(kept) == ["same.md"]


async def test_the_stage_that_lost_a_gold_passage_can_be_named_in_sql_and_by_why(services, dsn):
    """The gold passage is at lexical rank 40 or so: recalled, and cut by topK."""
    await put(
        services,
        *(
            doc(f"d{n:03}.md", f"The quokka of bay {n} " + " ".join(f"word{n}x{m}" for m in range(3 * n + 3)))
            for n in range(80)
        ),
    )
    result = await ask(services, "quokka", top_k=3)
    gold = "d040.md"
    assert gold not in sources(result)
    owner = await asyncpg.connect(dsn)
    row = await owner.fetchrow(
        """
        SELECT o->>'reason' AS reason, (o->'laneRanks'->0->>'rank')::int AS rank
        FROM tool_invocation, jsonb_array_elements(retrieval_details->'omitted') AS o
        WHERE id = $1 AND o->>'sourceKey' LIKE 'path:d040.md%'
        """,
        result.lookup_id,
    )
    await owner.close()
    assert row["reason"] == "BELOW_TOP_K"
    assert row["rank"] > 40
    why = await services.invocations.why(DEFAULT_TENANT, result.lookup_id, gold)
    assert not why.is_selected
    assert why.stage is Stage.TOP_K
    assert why.reason == row["reason"]


async def test_a_source_that_no_lane_nominated_is_explained_too(services):
    await put(services, doc("a.md", "Alpha text."), doc("b.md", "Beta text about nothing else."))
    result = await ask(services, "alpha")
    why = await services.invocations.why(DEFAULT_TENANT, result.lookup_id, "b.md")
    assert why.stage is Stage.LANE
    missing = await services.invocations.why(DEFAULT_TENANT, result.lookup_id, "never-ingested.md")
    assert missing.stage is Stage.INGEST


async def test_ten_candidates_and_room_for_three_leave_ten_rows_seven_with_a_reason(services):
    words = ["amber", "birch", "cedar", "dune", "ember", "fjord", "grove", "heath", "islet", "jetty"]
    await put(
        services,
        *(doc(f"{word}.md", f"The {word} lighthouse stands alone near the {word} shore.") for word in words),
    )
    result = await ask(services, "lighthouse", top_k=3)
    assert len(result.evidence_blocks) == 3
    assert result.omitted.total == 7
    assert result.omitted.by_reason == {"BELOW_TOP_K": 7}
    row = await services.invocations.show(DEFAULT_TENANT, result.lookup_id)
    details = row.retrieval_details
    assert len(details["evidenceBlocks"]) + details["omittedTotal"] == details["postprocess"]["raw"] == 10
    assert all(item["reason"] for item in details["omitted"])


async def test_nul_is_cleaned_in_text_and_metadata_keys_and_the_change_is_recorded(services):
    report = await put(
        services, doc("n.md", "A speci\u0000fic sentence about turbines.", metadata={"own\u0000er": "a\u0000b"})
    )
    assert report.normalisation["nul"] >= 1
    detail = await services.sources.get(DEFAULT_TENANT, "handbook", "n.md")
    assert detail.metadata["owner"] == "ab"
    assert sources(await ask(services, "specific turbines")) == ["n.md"]


async def test_a_lone_surrogate_is_dropped_and_a_split_pair_joined_again(services):
    report = await put(services, doc("s.md", "Lone \udbff here, pair \ud835\udc00 there, about walnuts."))
    assert report.normalisation["lone_surrogates"] == 1
    text = await services.sources.read_text(DEFAULT_TENANT, "handbook", "s.md")
    assert "𝐀" in text.text
    assert "\udbff" not in text.text


async def test_a_wrapped_cell_is_found_by_its_whole_word(services):
    rows = "<tr><th>持股比\n例</th><th>名称</th></tr><tr><td>12%</td><td>甲</td></tr>"
    html = f"<html><body><table>{rows}</table></body></html>"
    await put(services, doc("t.html", html, media_type="text/html"), doc("o.md", "别的内容。"))
    result = await ask(services, "持股比例")
    assert sources(result)[0] == "t.html"
    assert "持股比例" in result.primary


async def test_a_refused_document_names_code_stage_and_reason_and_the_rest_goes_on(services):
    report = await services.sources.ingest(
        DEFAULT_TENANT,
        "handbook",
        [DocumentInput(content=b"%PDF-1.7 broken", path="bad.pdf"), DocumentInput(content="Good text.", path="ok.md")],
    )
    assert (report.added, report.refused) == (1, 1)
    refusal = report.refusals[0]
    assert refusal.path == "bad.pdf"
    assert refusal.reason
    assert refusal.detail
    assert refusal.stage


async def test_deleted_text_is_gone_from_every_layer_at_once(services):
    await put(services, doc("gone.md", "# Secret heading\n\nThe zirconium code is written here."))
    assert (await ask(services, "zirconium code")).found
    await services.sources.delete(DEFAULT_TENANT, "handbook", "gone.md")
    for query in ("zirconium code", "Secret heading"):
        result = await ask(services, query)
        assert not result.found
        assert result.evidence_blocks == []
    assert result.empty_reason is EmptyReason.EMPTY_CONTEXT


async def test_a_foreign_context_name_is_not_found_and_gives_no_text(services):
    with pytest.raises(StrataError) as raised:
        await ask(services, "anything", context="nobody")
    assert raised.value.code == "context_not_found"
    assert raised.value.pointer == "/context"


async def test_replacing_while_asking_never_shows_half_a_document(services):
    """Readers see the old revision whole or the new one whole."""

    def text(version: int) -> str:
        return "\n\n".join(f"# Part {n}\n\nkestrel version{version} part {n}." for n in range(5))

    await put(services, doc("k.md", text(0)))

    async def replace() -> None:
        for version in range(1, 8):
            await put(services, doc("k.md", text(version)))

    async def look() -> None:
        for _ in range(25):
            result = await ask(services, "kestrel", top_k=20)
            versions = {word for b in result.evidence_blocks for word in b.content_preview.split() if "version" in word}
            assert len(versions) == 1
            assert len(result.evidence_blocks) + result.omitted.total >= 5

    await asyncio.gather(replace(), look())


async def other_tenant(dsn):
    tenant = uuid4()
    owner = await asyncpg.connect(dsn)
    await owner.execute("INSERT INTO tenant (tenant_id, name) VALUES ($1, 'other')", tenant)
    await owner.close()
    return tenant


async def vector_counts(services, tenant):
    async with services.database.work(tenant) as connection:
        return list(
            await connection.fetchrow(
                "SELECT (SELECT count(*) FROM passage_vector), (SELECT count(*) FROM embedding_space), "
                "(SELECT count(*) FROM work)"
            )
        )


async def test_the_context_of_another_tenant_gives_no_text_by_its_vectors_either(embedding_services, dsn):
    services, other = embedding_services, await other_tenant(dsn)
    await services.sources.ingest(other, "theirs", [DocumentInput(content="The quokka sleeps.", path="q.md")])
    await services.embeddings.run(other)
    foreign = str((await services.contexts.get(other, "theirs")).id)
    await put(services, doc("mine.md", "The zebra runs."))
    await services.embeddings.run(DEFAULT_TENANT)
    for ref in ("theirs", foreign):
        for call in (
            ask(services, "quokka", context=ref, lanes=[Lane.VECTOR]),
            services.embeddings.context_status(DEFAULT_TENANT, ref),
            services.embeddings.run(DEFAULT_TENANT, ref),
            services.embeddings.rebuild(DEFAULT_TENANT, ref),
        ):
            with pytest.raises(StrataError) as raised:
                await call
            assert raised.value.code == "context_not_found"
            assert "quokka" not in raised.value.detail
    nearest = await ask(services, "The quokka sleeps.", lanes=[Lane.VECTOR], top_k=50)
    assert sources(nearest) == ["mine.md"]


async def test_the_same_document_in_two_tenants_has_vectors_spaces_and_work_of_each(embedding_services, dsn):
    services, other = embedding_services, await other_tenant(dsn)
    same = [DocumentInput(content="# Shared\n\nThe very same bytes.", path="same.md")]
    for tenant in (DEFAULT_TENANT, other):
        await services.sources.ingest(tenant, "kb", same)
    assert await vector_counts(services, DEFAULT_TENANT) == await vector_counts(services, other) == [0, 0, 1]
    await services.embeddings.run(DEFAULT_TENANT)
    assert await vector_counts(services, DEFAULT_TENANT) == [1, 1, 0]
    assert await vector_counts(services, other) == [0, 0, 1]
    request = LookupRequest(query="the very same bytes", context="kb", lanes=[Lane.VECTOR, Lane.LEXICAL])
    mine, theirs = [await services.lookup.lookup(tenant, request, CALLER) for tenant in (DEFAULT_TENANT, other)]
    assert (sources(mine), mine.vector_coverage) == (["same.md"], 1.0)
    assert (sources(theirs), theirs.vector_coverage) == (["same.md"], 0.0)
    await services.embeddings.run(other)
    await services.sources.delete(DEFAULT_TENANT, "kb", "same.md")
    assert await vector_counts(services, DEFAULT_TENANT) == [0, 1, 0]
    assert await vector_counts(services, other) == [1, 1, 0]
    kept = await services.lookup.lookup(other, request, CALLER)
    assert (sources(kept), kept.vector_coverage) == (["same.md"], 1.0)
    assert "L1_VECTOR:1" in kept.evidence_blocks[0].hit_reasons
