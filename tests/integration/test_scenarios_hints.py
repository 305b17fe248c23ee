"""The scenarios of openspec/specs/hints over the real services."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

import msgspec
import pytest

from scenario_support import CONTEXT, ask, doc, pointed, put, sources
from strata.errors import StrataError
from strata.hints.schemas import HintInput
from strata.lookup.schemas import Filters
from strata.platform.ids import DEFAULT_TENANT

LEAVE = doc("hr/leave.md", "# Leave\n\n## Vacation\n\nThirty days are given each year.\n", category="hr")
LUNCH = doc("lunch.md", "# Lunch\n\nThe canteen opens at noon.\n")
OTHER_TENANT = UUID("0190f000-0000-7000-8000-0000000000aa")


async def curate(services, *hints, context=CONTEXT, tenant=DEFAULT_TENANT):
    return await services.hints.put(tenant, context, hints)


async def matched(services, query, context=CONTEXT):
    """The titles and reasons of the hints that a question means, best first."""
    async with services.database.work(DEFAULT_TENANT) as connection:
        found = await services.contexts.resolve(connection, DEFAULT_TENANT, context)
        hits = await services.hints.match(connection, DEFAULT_TENANT, [found.context_id], query)
    return {hit.entry.title: hit.reasons for hit in hits}


async def revision(services):
    return (await services.contexts.get(DEFAULT_TENANT, CONTEXT)).revisions.hints


async def test_width_case_and_punctuation_do_not_matter(services):
    await curate(services, HintInput(title="Annual-Leave Policy"), HintInput(title="サーバー設定"))
    for query in ("annual leave policy", "ＡＮＮＵＡＬ  ｌｅａｖｅ: policy?", "  Annual\tLeave\nPolicy"):
        assert (await matched(services, query))["Annual-Leave Policy"] == ("L0_EXACT",)
    for query in ("ｻｰﾊﾞｰ設定", "さーばー設定", "サーバー 設定"):
        assert (await matched(services, query))["サーバー設定"] == ("L0_EXACT",)


async def test_a_question_can_be_title_of_one_and_alias_of_another(services):
    await curate(services, HintInput(title="PTO"), HintInput(title="Annual leave", aliases=["pto"]))
    assert await matched(services, "PTO") == {"PTO": ("L0_EXACT",), "Annual leave": ("L0_ALIAS",)}


async def test_three_characters_begin_a_name_and_two_do_not(services):
    await curate(services, HintInput(title="Vacation policy of the company"))
    assert await matched(services, "vac") == {"Vacation policy of the company": ("L0_PREFIX",)}
    assert await matched(services, "va") == {}


async def test_a_keyword_is_whole_words_inside_the_question(services):
    await curate(services, HintInput(title="Leave", keywords=["sick note"]))
    assert await matched(services, "who gets the note when I am sick") == {"Leave": ("L0_KEYWORD",)}
    assert await matched(services, "who gets the notebook when I am sick") == {}


async def test_one_wrong_letter_is_forgiven_unless_a_name_is_whole(services):
    await curate(services, HintInput(title="Reimbursement"))
    reasons = (await matched(services, "Reimbursment"))["Reimbursement"]
    assert len(reasons) == 1
    assert reasons[0].startswith("L0_FUZZY:0.")
    await curate(services, HintInput(title="Reimbursment"))
    assert await matched(services, "Reimbursment") == {"Reimbursment": ("L0_EXACT",)}


async def test_a_name_inside_a_longer_name_does_not_match_as_such(services):
    await curate(
        services,
        HintInput(title="Leave", aliases=["parental leave"]),
        HintInput(title="Form", aliases=["parental leave form"]),
    )
    found = await matched(services, "please tell me in which office the parental leave form is kept")
    assert found == {"Form": ("L0_ALIAS",)}
    short = await matched(services, "where is the parental leave form kept")
    assert "L0_ALIAS" in short["Form"]
    assert "L0_ALIAS" not in short.get("Leave", ())


async def test_a_target_without_the_words_asked_is_still_evidence(services):
    await put(services, LEAVE, LUNCH)
    await curate(services, HintInput(title="Paid time off", aliases=["PTO"], targets=["hr/leave.md#vacation"]))
    result = await ask(services, "how much PTO do I get")
    (block,) = [block for block in result.evidence_blocks if block.source == "hr/leave.md"]
    assert block.source_key == "path:hr/leave.md#vacation"
    assert "L0" in block.layers
    assert "Thirty days" in block.content_preview
    assert block.citation.source == "hr/leave.md"


async def test_a_hint_without_targets_answers_by_its_summary(services):
    await put(services, LUNCH)
    await curate(services, HintInput(title="Wifi", summary="The network is called guest."), HintInput(title="Parking"))
    (block,) = (await ask(services, "wifi")).evidence_blocks
    assert (block.layers, block.content_preview) == (["L0"], "The network is called guest.")
    assert (await ask(services, "parking")).evidence_blocks == []


async def test_a_target_outside_the_filters_is_not_evidence(services):
    await put(services, LEAVE, LUNCH)
    await curate(services, HintInput(title="Canteen", targets=["hr/leave.md"], category="hr"))
    assert set(sources(await ask(services, "canteen"))) == {"lunch.md", "hr/leave.md"}
    assert sources(await ask(services, "canteen", filters=Filters(sources=["lunch.md"]))) == ["lunch.md"]


async def test_only_the_hint_that_is_valid_now_matches(services):
    now = datetime.now(UTC)
    day = timedelta(days=1)
    await curate(
        services,
        HintInput(title="Old rule", aliases=["rule"], valid_until=now - day),
        HintInput(title="New rule", aliases=["rule"], valid_from=now + day),
        HintInput(title="Rule", aliases=["rules"], valid_from=now - day, valid_until=now + day),
    )
    assert list(await matched(services, "rule")) == ["Rule"]


async def test_a_hint_that_ends_before_it_begins_is_refused(services):
    now = datetime.now(UTC)
    with pytest.raises(StrataError) as error:
        await curate(services, HintInput(title="Rule", valid_from=now, valid_until=now))
    assert pointed(error.value) == ("invalid_request", "/hints/0/validUntil")


async def test_one_wrong_hint_keeps_the_others_out(services):
    await curate(services, HintInput(title="Kept"))
    with pytest.raises(StrataError) as error:
        await curate(services, HintInput(title="One"), HintInput(title=" ?! "), HintInput(title="Three"))
    assert pointed(error.value) == ("invalid_request", "/hints/1/title")
    assert [hint.title for hint in (await services.hints.list(DEFAULT_TENANT, CONTEXT)).hints] == ["Kept"]


async def test_the_same_hints_again_are_unchanged_and_a_changed_one_is_found_at_once(services):
    hints = [HintInput(title="Leave", aliases=["PTO"]), HintInput(title="Lunch")]
    first = await curate(services, *hints)
    before = await revision(services)
    again = await curate(services, *hints)
    assert (again.created, again.updated, again.unchanged, again.ids) == (0, 0, 2, first.ids)
    assert await revision(services) == before
    changed = await curate(services, HintInput(title="leave", aliases=["time off"]))
    assert (changed.updated, changed.ids) == (1, first.ids[:1])
    assert await matched(services, "time off") == {"leave": ("L0_ALIAS",)}
    assert await matched(services, "PTO") == {}


@pytest.mark.parametrize("file_format", ["yaml", "json", "jsonl"])
async def test_hints_go_out_and_in_again_the_same(services, file_format):
    hint = HintInput(
        title="No: 有給休暇",
        aliases=["yes", "PTO", "2024"],
        keywords=["days off"],
        category="hr",
        breadcrumb=["HR", "Leave"],
        summary="Line one.\nLine two: “quoted”.",
        targets=["hr/leave.md#vacation"],
        priority=-3,
        valid_from=datetime(2026, 1, 1, tzinfo=UTC),
        metadata={"owner": "hr", "pages": [1, 2.5, None]},
    )
    await curate(services, hint, HintInput(title="Plain"))
    exported = await services.hints.export(DEFAULT_TENANT, CONTEXT, file_format)
    await services.hints.import_file(DEFAULT_TENANT, "copy", exported.encode(), file_format)

    async def content(context):
        hints = (await services.hints.list(DEFAULT_TENANT, context)).hints
        left_out = ("contextId", "createdAt", "updatedAt")
        return [{k: v for k, v in msgspec.to_builtins(item).items() if k not in left_out} for item in hints]

    assert await content("copy") == await content(CONTEXT)


async def test_a_fault_in_a_file_is_named_by_entry_and_line(services):
    data = b"- title: One\n  aliases: [a]\n- title: Two\n  alias: [b]\n"
    with pytest.raises(StrataError) as error:
        await services.hints.import_file(DEFAULT_TENANT, CONTEXT, data)
    assert error.value.code == "invalid_request"
    assert "Entry 2 (line 3)" in error.value.detail
    assert "'alias'" in error.value.detail
    assert (await services.contexts.list(DEFAULT_TENANT)).contexts == []


async def test_twenty_of_fifty_hints_are_returned_in_one_order(services):
    await curate(services, *(HintInput(title=f"Team {number}", aliases=["team page"]) for number in range(50)))
    first = await matched(services, "team page")
    assert len(first) == 20
    assert list(await matched(services, "team page")) == list(first)


class Counting:
    """A connection that counts what is asked of the database."""

    def __init__(self, connection):
        self._connection = connection
        self.statements = 0

    def __getattr__(self, name):
        self.statements += name in {"fetch", "fetchrow", "fetchval", "execute", "executemany"}
        return getattr(self._connection, name)


async def test_matching_takes_one_statement_when_nothing_changed(services):
    report = await curate(services, *(HintInput(title=f"Team {number}", aliases=["team page"]) for number in range(50)))
    assert report.created == 50
    counts = []
    async with services.database.work(DEFAULT_TENANT) as connection:
        context = (await services.contexts.resolve(connection, DEFAULT_TENANT, CONTEXT)).context_id
        for _ in range(3):
            counting = Counting(connection)
            assert await services.hints.match(counting, DEFAULT_TENANT, [context], "where is the team page of team 7")
            counts.append(counting.statements)
    assert counts[0] <= 2
    assert counts[1:] == [1, 1]


async def test_hints_of_another_context_and_tenant_are_not_evidence(services):
    await put(services, LUNCH)
    hint = HintInput(title="Wifi", summary="The network is called guest.")
    await curate(services, hint, context="elsewhere")
    await curate(services, hint, tenant=OTHER_TENANT)
    assert (await ask(services, "wifi")).evidence_blocks == []
    assert (await ask(services, "wifi", context="elsewhere")).found
