"""Sources and their paragraphs: stored, listed, searched, cited, taken back."""

from __future__ import annotations

import pytest
from taguru import NotFoundError, ValidationError

from wire.lighthouse import PARAGRAPHS, SOURCE, TEXT, fact, stock
from wire.public import World, listed, scenario


@scenario("context.store_passages", "context.lookup_passages", "context.cite_passage")
async def a_text_is_kept_to_the_byte_and_cited_by_paragraph(world: World) -> None:
    context = await world.made()
    text = "\n\nFirst line\r\nsecond line\n \t\nZweiter Absatz: ÄÖ 猫.\n\n\n"
    stored = await context.store_passages(
        {"a.md": text},
        questions={"a.md": [{"paragraph": 1, "question": "What of the cat?"}, {"paragraph": 9, "question": "None?"}]},
        sections={"a.md": [{"paragraph": 0, "section": "Begin"}, {"paragraph": 8, "section": "None"}]},
        locators={"a.md": [{"paragraph": 0, "locator": {"kind": "page", "value": "12"}}]},
    )
    assert (stored.stored, stored.questions_stored, stored.questions_dropped) == (1, 1, 1)
    assert (stored.sections_stored, stored.sections_dropped) == (1, 1)
    assert (stored.locators_stored, stored.locators_dropped) == (1, 0)
    found = await context.lookup_passages(["a.md", "none.md"])
    assert (found.passages, found.missing) == ({"a.md": text}, ["none.md"])
    first, second = await context.cite_passage("a.md", 0), await context.cite_passage("a.md", 1)
    assert (first.text, first.section) == ("First line\r\nsecond line", "Begin")
    assert (first.locator.kind, first.locator.value) == ("page", "12")
    assert (second.text, second.source, second.section, second.locator) == (
        "Zweiter Absatz: ÄÖ 猫.",
        "a.md",
        "Begin",
        None,
    )
    for source, paragraph, code in (("none.md", 0, "no_source"), ("a.md", 2, "no_paragraph")):
        with pytest.raises(NotFoundError) as missing:
            await context.cite_passage(source, paragraph)
        assert missing.value.code == code


@scenario("context.store_passages")
async def storing_again_replaces_a_source_whole(world: World) -> None:
    context = await world.made()
    await context.store_passages({"a": "one\n\ntwo"}, tags={"a": ["x"]}, dates={"a": 5})
    await context.store_passages({"a": "three", "b": ""})
    entries = {entry.name: entry for entry in (await context.list_sources()).entries}
    assert (entries["a"].tags, entries["a"].date) == ([], None)
    assert (await context.lookup_passages(["a", "b"])).passages == {"a": "three", "b": ""}
    with pytest.raises(NotFoundError) as gone:
        await context.cite_passage("a", 1)
    assert gone.value.code == "no_paragraph"
    for bad in ({"": "text"}, {"x" * 1025: "text"}):
        with pytest.raises(ValidationError):
            await context.store_passages(bad)
    with pytest.raises(ValidationError) as many:
        await context.store_passages({f"s{number}": "text" for number in range(1001)})
    assert many.value.code == "over_limit"
    with pytest.raises(ValidationError):
        await context.store_passages({"c": "text"}, tags={"c": [f"t{number}" for number in range(33)]})
    assert (await context.list_sources()).sources == ["a", "b"]


@scenario("context.list_sources", "context.iter_sources")
async def sources_are_listed_in_pages_with_what_is_known_of_them(world: World) -> None:
    context = await world.made()
    await context.store_passages(
        {name: f"text of {name}" for name in ("x/a", "x/b", "y/c")}, tags={"x/a": ["red", "blue"]}, dates={"x/a": 77}
    )
    page = await context.list_sources()
    assert (page.total, page.sources) == (3, ["x/a", "x/b", "y/c"])
    assert [entry.name for entry in page.entries] == page.sources
    assert (page.entries[0].date, sorted(page.entries[0].tags)) == (77, ["blue", "red"])
    assert page.entries[0].stored_at > 1_600_000_000
    assert (page.entries[1].date, page.entries[1].tags) == (None, [])
    assert await listed(context.iter_sources(limit=1)) == page.sources
    assert (await context.list_sources(limit=1, after="x/a")).sources == ["x/b"]
    prefixed = await context.list_sources(prefix="x/")
    assert (prefixed.total, prefixed.sources) == (2, ["x/a", "x/b"])
    assert await listed(context.iter_sources(prefix="y")) == ["y/c"]


@scenario("context.search_passages")
async def paragraphs_are_found_by_their_words(world: World) -> None:
    context = await stock(world)
    page = await context.search_passages("the keeper is Ida Brandt", limit=2)
    top = page.hits[0]
    assert (top.source, top.paragraph, top.text) == (SOURCE, 1, PARAGRAPHS[1])
    assert (top.lanes.bm25.rank, top.lanes.vector) == (1, None)
    assert [hit.score for hit in page.hits] == sorted((hit.score for hit in page.hits), reverse=True)
    assert len(page.hits) <= 2
    (plan,) = page.plan.contexts
    assert (plan.context, plan.lanes.bm25.ran, plan.lanes.vector.ran, plan.filter) == (world.name, True, False, None)
    assert plan.lanes.vector.reason
    assert (await context.search_passages("zebra crossing")).hits == []
    assert (await context.search_passages("keeper", limit=0)).hits == []
    with pytest.raises(ValidationError) as over:
        await context.search_passages("keeper", limit=1001)
    assert over.value.code == "over_limit"


@scenario("context.search_passages")
async def a_paragraph_is_found_by_a_question_that_it_answers(world: World) -> None:
    context = await world.made()
    await context.store_passages(
        {"a": "Open daily.\n\nClosed in winter."}, questions={"a": [{"paragraph": 1, "question": "opening season?"}]}
    )
    hits = (await context.search_passages("season")).hits
    assert [(hit.source, hit.paragraph, hit.text) for hit in hits] == [("a", 1, "Closed in winter.")]


@scenario("context.search_passages", "context.explain_search_passages")
async def a_search_is_restricted_by_tag_and_time_before_it_runs(world: World) -> None:
    context = await world.made()
    await context.store_passages(
        {"a": "common words of tea", "b": "common words of salt"}, tags={"a": ["red"]}, dates={"a": 1000}
    )
    tagged = await context.search_passages("common words", tags=["red", "green"])
    assert [hit.source for hit in tagged.hits] == ["a"]
    plan = tagged.plan.contexts[0].filter
    assert (plan.eligible_sources, plan.total_sources) == (1, 2)
    assert [hit.source for hit in (await context.search_passages("common words", until=1500)).hits] == ["a"]
    assert [hit.source for hit in (await context.search_passages("common words", since=1500)).hits] == ["b"]
    assert (await context.search_passages("common words", since=1000, until=1000)).hits == []
    explained = await context.explain_search_passages("common words", "b", tags=["red"])
    assert (explained.verdict, explained.source) == ("filtered_out", "b")


@scenario("context.explain_search_passages")
async def a_search_is_explained(world: World) -> None:
    context = await stock(world)
    await context.store_passages({"other.md": "Another light, another keeper."})
    served = await context.explain_search_passages("keeper of the weather", SOURCE, paragraph=1)
    assert (served.verdict, served.paragraph, served.paragraphs) == ("served", 1, 3)
    assert served.ranking.rank == 1
    assert served.bm25.score > 0
    assert {term.term for term in served.bm25.terms} >= {"keeper", "weather"}
    best = await context.explain_search_passages("keeper of the weather", SOURCE)
    assert (best.paragraph, best.paragraph_named) == (1, False)
    assert served.vector.ran is False
    verdicts = {
        "not_stored": await context.explain_search_passages("keeper", "none.md"),
        "paragraph_out_of_range": await context.explain_search_passages("keeper", SOURCE, paragraph=3),
        "no_query_terms": await context.explain_search_passages("!?", SOURCE),
        "no_term_overlap": await context.explain_search_passages("zebra", SOURCE),
        "below_cutoff": await context.explain_search_passages("keeper light", SOURCE, paragraph=2, limit=1),
    }
    assert {name: explained.verdict for name, explained in verdicts.items()} == {name: name for name in verdicts}
    cut = verdicts["below_cutoff"].ranking
    assert (cut.served, cut.limit) == (False, 1)
    assert cut.limit_to_reach == cut.rank
    reached = await context.search_passages("keeper light", limit=cut.limit_to_reach)
    assert (reached.hits[-1].source, reached.hits[-1].paragraph) == (SOURCE, 2)
    assert all(explained.summary for explained in verdicts.values())


@scenario("context.retract_source")
async def a_source_is_taken_back_with_what_only_it_asserts(world: World) -> None:
    context = await stock(world)
    await context.add_associations([fact("Harrow Light", "lit in", "1871", source="b")])
    preview = await context.retract_source(SOURCE, dry_run=True)
    assert (preview.associations_touched, preview.passage_removed) == (5, True)
    assert (await context.lookup_passages([SOURCE])).passages == {SOURCE: TEXT}
    assert await context.retract_source(SOURCE) == preview
    assert (await context.lookup_passages([SOURCE])).missing == [SOURCE]
    left = [match for match in (await context.recall("Harrow Light")).matches if match.count]
    assert [(match.object, [entry.source for entry in match.attributions]) for match in left] == [("1871", ["b"])]
    assert (await context.search_passages("keeper")).hits == []
    again = await context.retract_source(SOURCE)
    assert (again.associations_touched, again.passage_removed) == (0, False)
