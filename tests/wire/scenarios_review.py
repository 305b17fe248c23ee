"""What is judged of a graph: schemas, audits, communities, moves between contexts, embeddings."""

from __future__ import annotations

import json

import pytest
from taguru import (
    ConflictError,
    EmbeddingUnavailableError,
    NotFoundError,
    RelationDef,
    SchemaDocument,
    TypeDef,
    ValidationError,
)

from wire.lighthouse import SOURCE, cursor, fact, stock, triples
from wire.public import World, scenario

MANIFEST = "communities:manifest"


def schema(how, **changes):
    """Return a schema document in which keepers are people who keep lights."""
    document = {
        "schema": 1,
        "mode": how,
        "closed_labels": False,
        "types": {"Light": {"is_a": ["Building"]}, "Person": {"is_a": []}},
        "relations": {"keeper": {"domain": ["Building"], "range": ["Person"]}},
    }
    return document | changes


@scenario("context.put_schema", "context.get_schema")
async def a_schema_is_installed_and_read_back(world: World) -> None:
    context = await world.made()
    with pytest.raises(NotFoundError) as none:
        await context.get_schema()
    assert none.value.code == "no_schema"
    with pytest.raises(NotFoundError) as no_context:
        await world.client.context(f"{world.name}-none").get_schema()
    assert no_context.value.code == "no_context"
    document = SchemaDocument(
        schema=1,
        mode="off",
        closed_labels=True,
        types={"Light": TypeDef(is_a=["Building"])},
        relations={"keeper": RelationDef(domain=["Light"], range=[])},
    )
    assert await context.put_schema(document) == document
    assert await context.get_schema() == document
    assert (await context.put_schema(schema("warn"))).mode == "warn"
    for bad in (
        {"mode": "loud"},
        {"types": {"A": {"is_a": ["B"]}, "B": {"is_a": ["A"]}}},
        {"relations": {"schema:type": {"domain": [], "range": []}}},
        {"colour": "red"},
    ):
        with pytest.raises(ValidationError):
            await context.put_schema(schema("warn", **bad))
    assert (await context.get_schema()).mode == "warn"


@scenario("context.put_schema", "context.add_associations", "context.describe", "context.query", "context.resolve")
async def a_schema_warns_or_refuses(world: World) -> None:
    context = await world.made()
    await context.put_schema(schema("warn"))
    typed = [fact("Harrow Light", "schema:type", "Light"), fact("Gull Point", "schema:type", "Place")]
    kept = fact("Gull Point", "keeper", "Ida Brandt")
    warned = await context.add_associations([*typed, kept, fact("Harrow Light", "keeper", "Ida Brandt")])
    assert (warned.applied, warned.schema_violations) == (4, 1)
    (issue,) = warned.issues
    assert (issue.path, issue.kind) == ("associations[2].subject", "domain")
    assert "Building" in issue.expected
    assert "Place" in issue.actual
    await context.put_schema(schema("strict"))
    with pytest.raises(ValidationError) as refused:
        await context.add_associations([fact("a", "l", "b"), kept])
    assert (refused.value.status, refused.value.code) == (400, "invalid_argument")
    (named,) = refused.value.body["issues"]
    assert (named["path"], named["kind"]) == ("associations[1].subject", "domain")
    assert (await context.query(subject="a")).total == 0
    await context.put_schema(schema("strict", closed_labels=True))
    with pytest.raises(ValidationError):
        await context.add_associations([fact("a", "unheard of", "b")])
    await context.put_schema(schema("off"))
    assert (await context.add_associations([kept])).issues == []
    assert (await context.describe("Harrow Light")).types == ["Light"]
    assert (await context.resolve("Harrow Light"))[0].types == ["Light"]
    buildings = await context.query(label="keeper", subject_types="Building")
    assert triples(buildings.matches) == [("Harrow Light", "keeper", "Ida Brandt")]
    assert (await context.query(label="keeper", object_types=["Person"])).total == 0
    with pytest.raises(ConflictError):
        await context.add_aliases(labels={"type": "schema:type"})


@scenario("context.audit_schema", "context.validate_schema")
async def a_schema_is_held_against_what_is_there(world: World) -> None:
    context = await world.made()
    with pytest.raises(NotFoundError) as none:
        await context.audit_schema()
    assert none.value.code == "no_schema"
    await context.add_associations(
        [
            fact("Gull Point", "schema:type", "Place"),
            fact("Gull Point", "keeper", "Ida", 3.0),
            fact("Gull Point", "keeper", "Olaf", 1.0),
            fact("Gull Point", "near", "Ida"),
        ]
    )
    tried = await context.validate_schema(schema("strict"), limit=1)
    assert (tried.total, len(tried.violations)) == (2, 1)
    worst = tried.violations[0]
    assert (worst.association.object, worst.issues[0].kind) == ("Ida", "domain")
    rest = await context.validate_schema(schema("strict"), after=cursor(worst.association))
    assert (rest.total, [entry.association.object for entry in rest.violations]) == (2, ["Olaf"])
    assert tried.untyped_concepts.names == ["Ida", "Olaf"]
    assert (tried.undeclared_types.total, tried.undeclared_types.names) == (1, ["Place"])
    assert tried.unknown_labels.names == ["near"]
    assert tried.reserved_alias_conflicts.aliases == {}
    with pytest.raises(NotFoundError):
        await context.get_schema()
    await context.put_schema(schema("warn"))
    assert (await context.audit_schema(limit=1)).violations == tried.violations
    with pytest.raises(ValidationError):
        await context.validate_schema(schema("loud"))


@scenario("context.audit_vocabulary")
async def names_that_look_alike_are_listed(world: World) -> None:
    context = await world.made()
    await context.add_associations([fact("Gull Point North", "is", "cape"), fact("North Gull Point", "is", "cape")])
    audit = await context.audit_vocabulary(dice_floor=0.6)
    (pair,) = audit.lexical_concepts
    assert (pair.a, pair.b) == ("Gull Point North", "North Gull Point")
    assert 0.6 <= pair.score < 1
    assert (audit.lexical_labels, audit.semantic_concepts, audit.semantic_labels) == ([], [], [])
    assert audit.semantic_note
    assert (await context.audit_vocabulary(dice_floor=1.0)).lexical_concepts == []


@scenario("context.audit_drift")
async def weight_without_a_source_and_aliases_of_nothing_are_listed(world: World) -> None:
    context = await world.made()
    await context.add_associations(
        [
            fact("a", "l", "b", 1.0),
            fact("a", "l", "c", 5.0),
            fact("a", "l", "c", 2.0, source="s"),
            fact("x", "l", "y", source="s"),
        ]
    )
    await context.add_aliases(concepts={"EX": "x", "AY": "a"})
    await context.retract_association("x", "l", "y")
    audit = await context.audit_drift()
    assert audit.total == 2
    worst, other = audit.unsourced
    assert (worst.association.object, worst.unsourced_weight, worst.unsourced_count) == ("c", 5.0, 1)
    assert (worst.association.weight, worst.association.count) == (3.5, 2)
    assert (other.association.object, other.association.attributions) == ("b", [])
    assert (audit.dead_concept_aliases, audit.dead_label_aliases, audit.twins) == ({"EX": "x"}, {}, None)
    floored = await context.audit_drift(unsourced_floor=2.0)
    assert [edge.association.object for edge in floored.unsourced] == ["c"]
    first = await context.audit_drift(limit=1)
    assert (first.total, len(first.unsourced)) == (2, 1)
    after = cursor(worst.association) | {"weight": worst.unsourced_weight}
    rest = await context.audit_drift(after=after)
    assert [edge.association.object for edge in rest.unsourced] == ["b"]
    assert (await context.audit_drift(include_twins=True, dice_floor=0.4)).twins.lexical_concepts == []


@scenario("context.audit_consolidation")
async def what_may_be_one_or_wrong_or_old_is_listed(world: World) -> None:
    context = await world.made()
    await context.store_passages({"old": "Old.", "new": "New."}, dates={"old": 1000, "new": 2000})
    await context.add_associations(
        [
            fact("Harrow Light", "keeper", "Ida", source="old"),
            fact("Harrow Light", "keeper", "Olaf", source="new"),
            fact("Harrow Light", "open to", "visitors", 1.0, source="old"),
            fact("Harrow Light", "open to", "visitors", -1.0, source="new"),
            fact("Harrow Lights", "built by", "Lund", source="new"),
            fact("Harrow Light", "built by", "Lund", source="new"),
        ]
    )
    checks = ["merge", "contradiction", "staleness"]
    audit = await context.audit_consolidation(checks)
    assert audit["detector"] == "consolidation/1"
    (merge,) = audit["merge"]["candidates"]
    assert (merge["a"], merge["b"], merge["tier"]) == ("Harrow Light", "Harrow Lights", "lexical")
    assert merge["shared"] == [{"direction": "out", "label": "built by", "other": "Lund"}]
    kinds = {entry["kind"]: entry for entry in audit["contradiction"]["candidates"]}
    assert set(kinds) == {"objects", "contested"}
    assert [(row["object"], row["latest"]) for row in kinds["objects"]["objects"]] == [("Ida", 1000), ("Olaf", 2000)]
    assert (kinds["contested"]["supporting_sources"], kinds["contested"]["disputing_sources"]) == (["old"], ["new"])
    (stale,) = audit["staleness"]["candidates"]
    assert (stale["object"], stale["gap"]) == ("Ida", 1000)
    assert all(entry["fingerprint"] for part in checks for entry in audit[part]["candidates"])
    assert await context.audit_consolidation(checks) == audit
    one = await context.audit_consolidation(["contradiction"], limit=1, evidence_cap=1, floor_secs=5)
    assert "merge" not in one
    assert (one["contradiction"]["total"], len(one["contradiction"]["candidates"])) == (2, 1)
    assert (await context.audit_consolidation(["staleness"], floor_secs=1001))["staleness"]["total"] == 0
    for bad in ([], ["luck"]):
        with pytest.raises(ValidationError):
            await context.audit_consolidation(bad)


@scenario("context.promote")
async def a_source_moves_whole_to_another_context(world: World) -> None:
    context, target = await stock(world), f"{world.name}-to"
    await context.store_passages({"stays": "Elsewhere."})
    await context.add_associations([fact("far", "from", "here", source="stays")])
    await context.add_aliases(concepts={"HL": "Harrow Light", "FAR": "far"})
    await world.client.contexts.create(target)
    preview = await context.promote(target, [SOURCE], dry_run=True)
    assert (len(preview.batches), preview.audit, preview.aliases_dropped) == (1, None, 1)
    assert (await world.client.context(target).list_sources()).total == 0
    outcome = await context.promote(target, [SOURCE])
    (batch,) = outcome.batches
    assert (batch.source, batch.context, batch.associations, batch.passage_stored) == (SOURCE, target, 5, True)
    assert (batch.created, batch.retracted, batch.aliases) == (False, 0, 1)
    assert outcome.audit["detector"] == "consolidation/1"
    assert (outcome.aliases_dropped, outcome.audit_skipped) == (1, None)
    there = world.client.context(target)
    assert (await there.query(subject="HL", label="keeper")).matches[0].object == "Ida Brandt"
    assert (await there.list_sources()).sources == [SOURCE]
    again = await context.promote(target, [SOURCE], audit=False)
    assert (again.batches[0].retracted, again.audit) == (5, None)
    assert (await there.query(subject="Harrow Light", label="keeper")).matches[0].count == 1
    with pytest.raises(NotFoundError) as missing:
        await context.promote(target, [SOURCE, "none"])
    assert missing.value.code == "no_source"
    with pytest.raises(NotFoundError) as no_context:
        await context.promote(f"{world.name}-none", [SOURCE])
    assert no_context.value.code == "no_context"


@scenario("context.analyze_communities")
async def communities_are_lines_of_json(world: World) -> None:
    context = await stock(world)
    header, *communities = [json.loads(line) for line in (await context.analyze_communities()).splitlines()]
    assert (header["taguru_communities"], header["context"], header["algorithm"]) == (1, world.name, "louvain-cc/1")
    assert communities
    leaves = [community for community in communities if community["level"] == 0]
    members = [member["name"] for leaf in leaves for member in leaf["members"]]
    assert sorted(members) == sorted({"Harrow Light", "1871", "Gull Point", "Ida Brandt", "weather", "visitors"})
    assert all(len(community["fingerprint"]) == 16 for community in communities)
    assert [community["level"] for community in communities] == sorted(community["level"] for community in communities)


@scenario("context.search_communities")
async def summaries_of_communities_are_searched_and_say_when_they_are_stale(world: World) -> None:
    context = await stock(world)
    with pytest.raises(NotFoundError) as none:
        await context.search_communities("keeper")
    assert none.value.code == "no_context"
    derived = f"{world.name}::communities"
    await summarised(world, derived)
    page = await context.search_communities("keeper of the light", limit=3)
    assert (page.derived, page.algorithm, page.stale) == (derived, "louvain-cc/1", False)
    assert page.revision.recorded_graph == page.revision.current_graph
    (hit,) = page.hits
    assert (hit.community, hit.level, hit.concept_count, hit.paragraph) == ("L0-0", 0, 2, 0)
    assert [(member.name, member.strength) for member in hit.members] == [("Harrow Light", 3.0), ("Ida Brandt", 2.0)]
    assert "keeper" in hit.text
    await context.add_associations([fact("Harrow Light", "repaired in", "1903")])
    page = await context.search_communities("keeper of the light", derived=derived)
    assert page.stale is True
    assert page.revision.current_graph > page.revision.recorded_graph
    package = await context.assemble_evidence(
        "Ida Brandt", include_communities=True, text_fallback_query="keeper light"
    )
    assert package.plan.lanes.communities.ran is True
    assert "L0-0" in [item.community.community for item in package.items if item.kind == "community"]


@scenario("context.refresh_embeddings", "context.embeddings_status")
async def a_server_without_an_embedder_says_so(world: World) -> None:
    context = await stock(world)
    status = await context.embeddings_status()
    assert (status.provider_model, status.glosses, status.passages) == (None, None, None)
    with pytest.raises(EmbeddingUnavailableError) as off:
        await context.refresh_embeddings()
    assert (off.value.status, off.value.reason, off.value.code) == (501, "not_configured", "embeddings_unconfigured")


@scenario("context.compact")
async def compaction_finds_nothing_dead(world: World) -> None:
    context = await stock(world)
    await context.retract_source(SOURCE)
    outcome = await context.compact()
    assert (outcome.dead_edges, outcome.aliases_dropped) == (0, 0)
    assert outcome.bytes_after <= outcome.bytes_before
    assert await context.resolve("Harrow Light") == []


async def summarised(world, derived):
    """Make by hand what a build of summaries makes: a context with a summary, its members and a manifest."""
    revision = (await world.client.contexts.get(world.name)).revision
    await world.client.contexts.create(derived)
    manifest = {
        "taguru_communities": 1,
        "algorithm": "louvain-cc/1",
        "source_context": world.name,
        "revision": {"graph": revision.graph, "passages": revision.passages, "config": revision.config},
        "levels": 1,
        "communities": [{"id": "L0-0", "level": 0, "fingerprint": "0123456789abcdef", "concept_count": 2}],
    }
    context = world.client.context(derived)
    await context.store_passages(
        {"community:L0-0": "The Harrow Light and its keeper, Ida Brandt.", MANIFEST: json.dumps(manifest)}
    )
    await context.add_associations(
        [fact("community:L0-0", "contains", "Harrow Light", 3.0), fact("community:L0-0", "contains", "Ida Brandt", 2.0)]
    )
