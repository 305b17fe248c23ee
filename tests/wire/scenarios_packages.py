"""Whole answers and whole contexts: evidence, the retrieval loop, export and import."""

from __future__ import annotations

import json

import pytest
from taguru import ConflictError, NotFoundError, ValidationError, citation_key

from wire.lighthouse import PARAGRAPHS, SOURCE, TEXT, fact, stock
from wire.public import World, scenario


@scenario("context.assemble_evidence")
async def evidence_comes_with_its_citations_within_a_budget(world: World) -> None:
    context = await stock(world)
    package = await context.assemble_evidence("Harrow Light", text_fallback_query="records the weather")
    assert {item.kind for item in package.items} == {"association", "passage"}
    facts = [item for item in package.items if item.kind == "association"]
    assert all(item.association and item.passage is None and item.community is None for item in facts)
    assert all(item.corroboration.sources == [SOURCE] for item in facts)
    cited = {(entry.source, entry.paragraph): entry.citation.text for entry in package.citations}
    assert cited == {(SOURCE, number): text for number, text in enumerate(PARAGRAPHS)}
    assert sorted(item.fused_rank for item in package.items) == sorted({item.fused_rank for item in package.items})
    limits = package.budget.limits
    assert (limits.max_items, limits.max_bytes, limits.max_tokens) == (40, 65_536, 4_000)
    assert package.budget.items_used == len(package.items)
    lanes = package.plan.lanes
    assert (lanes.resolve.ran, lanes.query.ran, lanes.activate.ran, lanes.passages.ran) == (True, False, True, True)
    assert (lanes.communities.ran, lanes.citations.ran) == (False, True)
    assert lanes.query.reason
    assert (package.plan.reranker.configured, package.plan.reranker.reason) == (False, None)
    small = await context.assemble_evidence(["Harrow Light"], budget={"max_items": 1})
    assert (len(small.items), small.budget.limits.max_items) == (1, 1)
    assert small.omitted_total == sum(small.omitted_by_reason.values()) >= len(small.omitted) > 0
    empty = await context.assemble_evidence("Harrow Light", budget={"max_tokens": 0})
    assert (empty.items, empty.budget.bytes_used, empty.budget.tokens_used) == ([], 4, 1)


@scenario("context.assemble_evidence")
async def evidence_takes_every_option_of_the_client(world: World) -> None:
    context = await stock(world)
    package = await context.assemble_evidence(
        ["harrow ligth"],
        labels=["keeper"],
        dice_floor=0.2,
        semantic_floor=0.9,
        resolve_limit=3,
        activate_decay=0.3,
        activate_limit=2,
        text_fallback_query="visitors",
        search_limit=1,
        include_communities=True,
        budget={"max_items": 10, "max_bytes": 9000, "max_tokens": 2000},
        rerank={"model": "some"},
    )
    assert package.plan.lanes.query.ran is True
    assert "graph_query" in {rank.lane for item in package.items for rank in item.lane_ranks}
    assert (package.plan.lanes.communities.ran, bool(package.plan.lanes.communities.reason)) == (False, True)
    assert (package.plan.reranker.ran, package.plan.reranker.reason) == (False, "not_configured")
    nothing = await context.assemble_evidence([])
    assert (nothing.items, nothing.plan.lanes.resolve.ran) == ([], False)
    with pytest.raises(NotFoundError) as missing:
        await world.client.context(f"{world.name}-none").assemble_evidence("x")
    assert missing.value.code == "no_context"
    with pytest.raises(ValidationError) as over:
        await context.assemble_evidence(["x"] * 1001)
    assert over.value.code == "over_limit"
    with pytest.raises(ValidationError):
        await context.assemble_evidence("x", budget={"max_items": 1001})


@scenario("context.assemble_evidence")
async def contradicting_facts_come_together_or_not_at_all(world: World) -> None:
    context = await world.made()
    await context.add_associations([fact("Harrow Light", "keeper", "Ida"), fact("Harrow Light", "keeper", "Olaf")])
    package = await context.assemble_evidence("Harrow Light")
    first, second = package.items
    assert (first.contradicts, second.contradicts) == ([second.candidate_id], [first.candidate_id])
    assert package.plan.selection.contradiction_groups == 1
    tight = await context.assemble_evidence("Harrow Light", budget={"max_items": 1})
    assert tight.items == []
    assert tight.omitted_by_reason == {"contradiction_group_exceeds_budget": 2}


@scenario("context.retrieve")
async def the_retrieval_loop_of_the_client_runs_whole(world: World) -> None:
    context = await stock(world)
    result = await context.retrieve("harrow light", labels="keeper", text_fallback_query="weather")
    assert result.resolved["harrow light"][0].name == "Harrow Light"
    assert result.outline["Harrow Light"].as_subject
    assert result.associations[0].object == "Ida Brandt"
    assert len(result.activations) == 5
    assert result.citations[citation_key(SOURCE, 1)].text == PARAGRAPHS[1]
    assert (result.passage_hits, result.search_plan) == ([], None)
    both = await context.retrieve(
        ["Ida Brandt"],
        text_fallback_query="weather",
        text_fallback_only_if_empty=False,
        fetch_citations=False,
        search_limit=1,
    )
    assert both.citations == {}
    assert [hit.text for hit in both.passage_hits] == [PARAGRAPHS[1]]
    assert both.search_plan.contexts[0].context == world.name
    fallen = await context.retrieve("zzz", text_fallback_query="visitors")
    assert (fallen.associations, [hit.paragraph for hit in fallen.passage_hits]) == ([], [2])


def told(page):
    """Return what is said of each fact; what no source said is restored under a name that says so."""
    return [
        (match.subject, match.label, match.object, match.weight, match.count, sourced(match)) for match in page.matches
    ]


def sourced(match):
    """Return who asserts a fact, by name."""
    return [entry for entry in match.attributions if entry.source != "export:unsourced"]


@scenario("context.export", "client.import_batches")
async def a_context_is_exported_and_restored(world: World) -> None:
    context = await stock(world)
    await context.store_passages(
        {"b.md": "One.\n\nTwo."},
        questions={"b.md": [{"paragraph": 1, "question": "What is second?"}]},
        sections={"b.md": [{"paragraph": 0, "section": "All"}]},
        locators={"b.md": [{"paragraph": 1, "locator": {"kind": "page", "value": "2"}}]},
        tags={"b.md": ["t"]},
        dates={"b.md": 99},
    )
    await context.add_associations([fact("x", "l", "y", 2.0), fact("x", "l", "y", 4.0, source="b.md", paragraph=1)])
    await context.add_aliases(concepts={"HL": "Harrow Light"}, labels={"run by": "keeper"})
    stream = await context.export()
    assert [json.loads(line) for line in stream.splitlines()]
    assert stream == await context.export()
    restored = f"{world.name}-r"
    moved = stream.replace(f'"{world.name}"', f'"{restored}"')
    result = await world.client.import_batches(moved)
    assert {outcome.context for outcome in result.batches} == {restored}
    assert [outcome.created for outcome in result.batches].count(True) == 1
    again = await world.client.import_batches(moved.encode())
    assert {outcome.created for outcome in again.batches} == {False}
    copy = world.client.context(restored)
    for subject in ("x", "Harrow Light", "Ida Brandt"):
        assert told(await copy.recall(subject)) == told(await context.recall(subject))
    assert (await copy.lookup_passages([SOURCE, "b.md"])).passages == {SOURCE: TEXT, "b.md": "One.\n\nTwo."}
    assert (await copy.cite_passage("b.md", 1)) == (await context.cite_passage("b.md", 1))
    assert (await copy.get_aliases()) == (await context.get_aliases())
    entries = (await copy.list_sources()).entries
    assert [entry for entry in entries if entry.stored_at] == (await context.list_sources()).entries
    assert (await world.client.contexts.get(restored)).description == "what is known of the Harrow Light"
    assert (await copy.export()) == moved


@scenario("context.export_stream", "context.export_to_file", "client.import_file")
async def an_export_goes_through_a_file(world: World) -> None:
    context = await stock(world)
    stream = await context.export()
    assert b"".join([chunk async for chunk in context.export_stream()]).decode() == stream
    path = world.folder / "context.jsonl"
    await context.export_to_file(path)
    assert path.read_text(encoding="utf-8") == stream
    await world.client.contexts.delete(world.name)
    result = await world.client.import_file(path)
    assert result.batches[0].created
    assert (await context.recall("Harrow Light")).total == 4
    with pytest.raises(NotFoundError):
        await world.client.context(f"{world.name}-none").export()


@scenario("client.import_batches", "context.export")
async def a_schema_travels_with_its_context_and_warns_on_the_way(world: World) -> None:
    lines = [
        {
            "taguru_schema": 1,
            "context": world.name,
            "mode": "warn",
            "closed_labels": True,
            "types": {},
            "relations": {},
        },
        {"taguru_batch": 1, "context": world.name, "source": "a", "create": {"description": "made by import"}},
        {"subject": "s", "label": "l", "object": "o", "weight": 1.5},
    ]
    await world.made()
    first = await world.client.import_batches("\n".join(json.dumps(line) for line in lines))
    assert (first.schemas[0].context, first.schemas[0].mode) == (world.name, "warn")
    second = await world.client.import_batches("\n".join(json.dumps(line) for line in lines[1:]))
    assert (second.schema_violations, second.batches[0].schema_violations) == (1, 1)
    assert second.issues[0].kind
    exported = [json.loads(line) for line in (await world.context.export()).splitlines()]
    assert exported[0] == lines[0]


@scenario("client.import_batches")
async def an_import_that_is_refused_says_what_stands(world: World) -> None:
    client = world.client
    header = {"taguru_batch": 1, "context": world.name, "source": "a", "create": {"description": ""}}
    second = {"taguru_batch": 1, "context": world.name, "source": "b"}
    good = {"subject": "s", "label": "l", "object": "o", "weight": 1}
    lost = {"alias": "S", "canonical": "nobody", "kind": "concept"}

    async def refused(*lines):
        with pytest.raises((ValidationError, ConflictError, NotFoundError)) as error:
            await client.import_batches("\n".join(json.dumps(line) for line in lines))
        return error.value

    wrong = await refused(header, {**good, "weight": "much"})
    assert (wrong.status, wrong.code) == (400, "invalid_argument")
    assert "line 2" in str(wrong)
    assert (await refused(header, good, {**good, "colour": "red"})).status in {400, 422}
    assert (await refused(header, good, header, good)).status in {400, 409, 422}
    assert (await refused(second, good)).code == "no_context"
    assert not await client.contexts.exists(world.name)
    conflict = await refused(header, good, second, lost)
    assert (conflict.status, conflict.code) == (409, "conflict")
    body = conflict.body
    assert (body["integrity"], body["durable_batches"], body["issues_total"]) == ("durable_prefix", 1, 1)
    assert body["retryable_after_correction"] is True
    assert (body["issues"][0]["kind"], body["issues"][0]["path"]) == ("unknown_reference", "batches[1].concepts['S']")
    assert (await world.context.query(subject="s")).total == 1
    alone = await refused(second, lost)
    assert alone.body["integrity"] == "nothing_written"
