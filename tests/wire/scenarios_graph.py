"""Facts: how they are asserted, found, walked, renamed and taken back."""

from __future__ import annotations

import pytest
from taguru import ConflictError, NotFoundError, ValidationError

from wire.lighthouse import FACTS, SOURCE, TEXT, cursor, fact, stock, triples
from wire.public import World, listed, scenario


@scenario("context.add_associations", "context.query")
async def assertions_of_one_fact_add_up_by_source(world: World) -> None:
    context = await world.made()
    assert (await context.add_associations([fact("s", "l", "o", 1.0, source="a", paragraph=0)])).applied == 1
    again = await context.add_associations([fact("s", "l", "o", 3.0, source="b"), fact("s", "l", "o", -1.0)])
    assert (again.applied, again.issues, again.schema_violations) == (2, [], 0)
    page = await context.query(subject="s", label="l")
    (match,) = page.matches
    assert (page.total, match.weight, match.count) == (1, 1.0, 3)
    assert [(entry.source, entry.weight, entry.count) for entry in match.attributions] == [("a", 1.0, 1), ("b", 3.0, 1)]
    assert page.plan.contexts == [world.name]


@scenario("context.add_associations")
async def an_assertion_that_does_not_fit_changes_nothing(world: World) -> None:
    context = await world.made()
    good = fact("s", "l", "o")
    for bad in (
        {**good, "weight": 1e300},
        {**good, "weight": -1_000_001.0},
        {**good, "subject": ""},
        {**good, "label": "x" * 1025},
        {**good, "object": "猫" * 342},
    ):
        with pytest.raises(ValidationError) as refused:
            await context.add_associations([good, bad])
        assert refused.value.code in {"invalid_argument", "over_limit"}
    with pytest.raises(ValidationError) as many:
        await context.add_associations([fact(f"s{number}", "l", "o") for number in range(10_001)])
    assert many.value.code == "over_limit"
    with pytest.raises(ValidationError) as shape:
        await context.add_associations([{"subject": "s", "label": "l", "object": "o"}])
    assert (shape.value.status, shape.value.code) == (422, "malformed_request")
    with pytest.raises(NotFoundError):
        await world.client.context(f"{world.name}-none").add_associations([good])
    assert (await context.query(subject="s")).total == 0


@scenario("context.add_associations_batched")
async def a_long_list_of_assertions_goes_in_chunks(world: World) -> None:
    context = await world.made()
    result = await context.add_associations_batched([fact(f"s{n}", "l", "o") for n in range(25)], chunk_size=10)
    assert (result.applied, result.chunks) == (25, 3)
    assert (await context.recall("o", limit=0)).total == 25


@scenario("context.recall", "context.query")
async def matches_come_by_weight_and_in_pages(world: World) -> None:
    context = await world.made()
    await context.add_associations(
        [fact("s", "l", "b", 2.0), fact("s", "l", "a", 2.0), fact("s", "m", "c", -5.0), fact("d", "l", "s", 1.0)]
    )
    ranked = [("s", "m", "c"), ("s", "l", "a"), ("s", "l", "b"), ("d", "l", "s")]
    page = await context.recall("s")
    assert (page.total, triples(page.matches)) == (4, ranked)
    assert triples((await context.recall("l")).matches) == [ranked[1], ranked[2], ranked[3]]
    seen, after = [], None
    while True:
        page = await context.recall("s", limit=2, after=after)
        assert page.total == 4
        if not page.matches:
            break
        seen += triples(page.matches)
        after = cursor(page.matches[-1])
    assert seen == ranked
    either = await context.query(subject=["s", "d"], label="l", object=["a", "s"])
    assert triples(either.matches) == [ranked[1], ranked[3]]
    first = await context.query(label="l", limit=1)
    rest = await context.query(label="l", after=cursor(first.matches[0]))
    assert (first.total, rest.total, triples(rest.matches)) == (3, 3, ranked[2:])
    assert (await context.query(subject="nobody")).matches == []
    assert (await context.recall("nobody")).total == 0


@scenario("context.recall", "context.query", "context.explore", "context.activate")
async def a_window_of_time_counts_only_what_its_sources_assert(world: World) -> None:
    context = await world.made()
    await context.store_passages({"old": "Old.", "new": "New."}, dates={"old": 1000, "new": 2000})
    await context.add_associations(
        [
            fact("s", "l", "o", 1.0, source="old"),
            fact("s", "l", "o", 5.0, source="new"),
            fact("o", "l", "p", 1.0, source="new"),
            fact("s", "l", "q", 1.0),
        ]
    )
    (early,) = (await context.query(subject="s", until=2000)).matches
    assert (early.object, early.weight, early.count) == ("o", 1.0, 1)
    assert [entry.source for entry in early.attributions] == ["old"]
    late = await context.recall("o", since=2000)
    assert [(match.object, match.weight) for match in late.matches] == [("o", 5.0), ("p", 1.0)]
    assert (await context.recall("o", since=1000, until=1001)).total == 1
    assert (await context.query(subject="s", since=3000, until=4000)).total == 0
    assert [m.association.object for m in (await context.explore("s", until=1500)).matches] == ["o"]
    assert {m.association.object for m in (await context.explore("s")).matches} == {"o", "p", "q"}
    assert [m.association.object for m in (await context.activate("s", since=1500)).matches] == ["o", "p"]
    assert (await context.query(subject="s")).total == 2


@scenario("context.explore", "context.paths", "context.activate", "context.unreachable_from")
async def facts_are_walked_from_where_one_stands(world: World) -> None:
    context = await stock(world)
    walked = await context.explore(["Harrow Light"], max_depth=2)
    assert walked.total == 5
    assert sorted(match.distance for match in walked.matches) == [1, 1, 1, 1, 2]
    far = next(match for match in walked.matches if match.distance == 2)
    assert (far.association.object, far.path) == ("weather", ["Harrow Light", "Ida Brandt"])
    assert (await context.explore("Harrow Light", max_depth=1)).total == 4
    first = await context.explore("Harrow Light", limit=2)
    last = first.matches[-1]
    after = {"distance": last.distance, **{k: getattr(last.association, k) for k in ("subject", "label", "object")}}
    rest = await context.explore("Harrow Light", after=after)
    assert (first.total, rest.total) == (5, 5)
    assert [*first.matches, *rest.matches] == walked.matches
    trails = await context.paths("Harrow Light", "weather")
    assert (trails.total, trails.capped) == (1, False)
    (trail,) = trails.matches
    assert (trail.distance, trail.path, trail.strength) == (2, ["Harrow Light", "Ida Brandt", "weather"], 1.0)
    assert [step.label for step in trail.associations] == ["keeper", "records"]
    assert (await context.paths("weather", ["1871"], max_depth=2)).total == 0
    assert (await context.paths("weather", ["1871"], max_depth=3, limit=1)).total == 1
    active = await context.activate(["Harrow Light"], limit=3)
    assert len(active.matches) == 3
    strengths = [match.strength for match in (await context.activate("Harrow Light")).matches]
    assert strengths == sorted(strengths, reverse=True)
    assert [
        match.strength for match in (await context.activate("Harrow Light", decay=0.0)).matches if match.strength
    ] == []
    assert (await context.unreachable_from(["Harrow Light"])).total == 0
    await context.add_associations([fact("x", "l", "y"), fact("x", "l", "z", 2.0)])
    cut_off = await context.unreachable_from("Harrow Light", limit=1)
    assert (cut_off.total, triples(cut_off.matches)) == (2, [("x", "l", "z")])
    rest = await context.unreachable_from("Harrow Light", after=cursor(cut_off.matches[0]))
    assert triples(rest.matches) == [("x", "l", "y")]


@scenario("context.explore", "context.paths", "context.activate")
async def walks_refuse_what_is_over_their_limits(world: World) -> None:
    context = await world.made()
    many = [f"x{number}" for number in range(1001)]
    for call in (context.explore(many), context.activate(many), context.paths(many, "y"), context.paths("y", many)):
        with pytest.raises(ValidationError) as over:
            await call
        assert over.value.code == "over_limit"
    assert (await context.explore("nobody")).total == 0
    assert (await context.activate("nobody")).matches == []
    assert (await context.paths("nobody", "nothing")).matches == []


@scenario("context.describe", "context.list_labels", "context.iter_labels")
async def a_concept_and_the_labels_are_outlined(world: World) -> None:
    context = await stock(world)
    outline = await context.describe("Ida Brandt")
    assert outline.concept == "Ida Brandt"
    assert [(usage.label, usage.count) for usage in outline.as_subject] == [("records", 1)]
    assert [(usage.label, usage.count) for usage in outline.as_object] == [("keeper", 1)]
    assert outline.types == []
    assert await context.describe("nobody") is None
    labels = sorted({entry["label"] for entry in FACTS})
    page = await context.list_labels()
    assert (page.total, page.labels) == (5, labels)
    assert await listed(context.iter_labels(limit=2)) == labels
    assert (await context.list_labels(limit=1, after=labels[0])).labels == [labels[1]]
    prefixed = await context.list_labels(prefix="l")
    assert (prefixed.total, prefixed.labels) == (1, ["lit in"])
    assert await listed(context.iter_labels(prefix="r")) == ["records"]


@scenario("context.resolve", "context.resolve_label")
async def a_cue_is_resolved_by_its_letters(world: World) -> None:
    context = await stock(world)
    exact = await context.resolve("ＨＡＲＲＯＷ light")
    assert (exact[0].name, exact[0].score, exact[0].tier, exact[0].kind) == ("Harrow Light", 1.0, "lexical", "exact")
    assert "keeper" in exact[0].gloss
    contained = await context.resolve("Brandt")
    assert (contained[0].name, contained[0].kind) == ("Ida Brandt", "containment")
    assert contained[0].score == pytest.approx(0.6)
    fuzzy = await context.resolve("Harow Ligth", dice_floor=0.3)
    assert ("Harrow Light", "fuzzy") in [(candidate.name, candidate.kind) for candidate in fuzzy]
    assert await context.resolve("Harow Ligth", dice_floor=0.99, limit=5) == []
    assert (await context.resolve_label("KEEPER"))[0].name == "keeper"
    assert len(await context.resolve("r", limit=1)) == 1
    assert await context.resolve("zzz") == []


@scenario("context.explain_resolve", "context.explain_resolve_label")
async def a_resolution_is_explained(world: World) -> None:
    context = await stock(world)
    served = await context.explain_resolve("Harow Light", "Harrow Light")
    assert (served.verdict, served.in_vocabulary, served.canonical) == ("served", True, "Harrow Light")
    assert served.ranking.rank == 1
    assert served.lexical.score >= served.lexical.floor
    unknown = await context.explain_resolve("Harrow Light", "Harrow Lite")
    assert (unknown.verdict, unknown.in_vocabulary) == ("not_in_vocabulary", False)
    assert unknown.nearest.lexical[0].name == "Harrow Light"
    assert (await context.explain_resolve("Harrow Light", "Gull Point")).verdict == "cue_resolved_exactly"
    below = await context.explain_resolve("Harow Ligth", "Harrow Light", dice_floor=0.99)
    assert below.verdict == "below_floor"
    cut = await context.explain_resolve("r", "weather", limit=1)
    if cut.verdict == "below_cutoff":
        assert cut.ranking.limit_to_reach > 1
    label = await context.explain_resolve_label("keepr", "keeper")
    assert (label.verdict, label.expected) == ("served", "keeper")
    assert all(explanation.summary for explanation in (served, unknown, below, cut, label))


@scenario("context.add_aliases", "context.get_aliases", "context.iter_aliases", "context.remove_aliases")
async def aliases_lead_in_and_never_show(world: World) -> None:
    context = await stock(world)
    assert (
        await context.add_aliases(concepts={"HL": "Harrow Light", "IB": "Ida Brandt"}, labels={"run by": "keeper"}) == 3
    )
    page = await context.get_aliases()
    assert (page.total, page.concepts) == (3, {"HL": "Harrow Light", "IB": "Ida Brandt"})
    assert page.labels == {"run by": "keeper"}
    entries = await listed(context.iter_aliases(limit=1))
    assert [entry.alias for entry in entries] == ["HL", "IB", "run by"]
    assert [entry.namespace for entry in entries] == ["concept", "concept", "label"]
    rest = await context.get_aliases(after="concept:IB")
    assert (rest.concepts, rest.labels, rest.total) == ({}, {"run by": "keeper"}, 3)
    assert (await context.get_aliases(prefix="H")).concepts == {"HL": "Harrow Light"}
    (found,) = (await context.query(subject="HL", label="run by")).matches
    assert (found.subject, found.label) == ("Harrow Light", "keeper")
    best = (await context.resolve("hl"))[0]
    assert (best.name, best.kind) == ("Harrow Light", "alias")
    assert await context.add_aliases(concepts={"HL": "Harrow Light"}) == 1
    assert await context.add_aliases(concepts={"Light HL": "HL"}) == 1
    assert (await context.get_aliases(prefix="Light")).concepts == {"Light HL": "Harrow Light"}
    for taken in ({"weather": "Ida Brandt"}, {"HL": "Ida Brandt"}, {"XX": "nobody"}):
        with pytest.raises(ConflictError) as conflict:
            await context.add_aliases(concepts=taken)
        assert conflict.value.code == "conflict"
    assert await context.remove_aliases(concepts=["HL", "never"], labels=["run by"]) == 2
    with pytest.raises((ConflictError, ValidationError)):
        await context.remove_aliases(concepts=["Harrow Light"])
    assert (await context.get_aliases()).labels == {}


@scenario("context.retract_association")
async def one_fact_is_taken_back_and_the_others_stay(world: World) -> None:
    context = await stock(world)
    await context.add_aliases(concepts={"HL": "Harrow Light"})
    outcome = await context.retract_association("HL", "lit in", "1871")
    assert (outcome.retracted, outcome.attributions_removed) == (True, 1)
    again = await context.retract_association("Harrow Light", "lit in", "1871")
    assert (again.retracted, again.attributions_removed) == (False, 0)
    assert [match.count for match in (await context.query(label="lit in")).matches if match.count] == []
    assert (await context.query(subject="Harrow Light", label="keeper")).total == 1


@scenario("context.changes")
async def the_feed_tells_every_change_once(world: World) -> None:
    context = await stock(world)
    start = await context.changes()
    assert (start.events, start.more) == ([], False)
    await context.add_associations([fact("a", "l", "b"), fact("a", "l", "c")])
    await context.retract_association("a", "l", "b")
    await context.add_aliases(concepts={"alpha": "a"})
    await context.remove_aliases(concepts=["alpha"])
    await context.store_passages({"x.md": TEXT})
    await context.retract_source("x.md")
    await context.put_schema({"schema": 1, "mode": "warn", "closed_labels": False, "types": {}, "relations": {}})
    seen, since = [], start.next
    while True:
        page = await context.changes(since=since, limit=2)
        assert len(page.events) <= 2
        seen += page.events
        since = page.next
        if not page.more:
            break
    assert [event.kind for event in seen] == [
        "associations_added",
        "association_retracted",
        "aliases_added",
        "aliases_removed",
        "source_stored",
        "source_retracted",
        "schema_updated",
    ]
    assert (seen[0].count, seen[2].count, seen[3].count) == (2, 1, 1)
    assert (seen[1].subject, seen[1].label, seen[1].object) == ("a", "l", "b")
    assert (seen[4].source, seen[5].source, seen[6].mode) == ("x.md", "x.md", "warn")
    assert [event.seq for event in seen] == sorted({event.seq for event in seen})
    assert (await context.changes(since=since)).events == []


@scenario("contexts.get")
async def the_directory_counts_what_a_context_holds_and_how_it_is_used(world: World) -> None:
    context = await stock(world)
    await context.add_associations([fact("a", "l", "b", 2.0)])
    await context.recall("Harrow Light")
    await context.recall("nobody")
    entry = await world.client.contexts.get(world.name)
    stats = entry.stats
    assert (stats.associations, stats.concepts, stats.labels, stats.sources) == (6, 8, 6, 1)
    assert (stats.unsourced_edges, stats.unsourced_weight) == (1, 2.0)
    assert (stats.top_concepts[0].label, stats.top_concepts[0].count) == ("Harrow Light", 4)
    assert sorted(stats.label_sample) == sorted({item["label"] for item in FACTS} | {"l"})
    assert (entry.usage.reads, entry.usage.empty_reads, entry.usage.writes) == (2, 1, 3)
    assert entry.usage.last_write_epoch > 0
    assert SOURCE in (await context.list_sources()).sources
    before = entry.revision
    await context.add_associations([fact("a", "l", "c")])
    after = (await world.client.contexts.get(world.name)).revision
    assert (after.graph != before.graph, after.passages) == (True, before.passages)
