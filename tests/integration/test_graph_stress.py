"""Writers of every kind at once in one context: nobody is refused for another, and nothing is left half written."""

from __future__ import annotations

import asyncio
import random
import time

import pytest

from exchange_support import facts, make_kit
from ingest_support import check, rows
from strata.errors import CONTEXT_EXISTS, CONTEXT_NOT_FOUND, SOURCE_NOT_FOUND, StrataError
from strata.exchange.schemas import StorePassagesIn
from strata.knowledge import stats_repository
from strata.knowledge.graph_model import Assertion, SourcedAssertion
from strata.lanes.lexical.repository import claim_merge
from strata.platform.ids import DEFAULT_TENANT as T
from strata.sources import write_repository

pytestmark = pytest.mark.database

WRITERS = 8
SECONDS = 8.0
PATHS = [f"doc{number}.md" for number in range(6)]
WORDS = [f"thing {number}" for number in range(12)]


def _fact(dice):
    subject, object_ = dice.sample(WORDS, 2)
    # A quarter is exact in binary: sums do not depend on the order.
    return Assertion(subject, f"rel {dice.randrange(3)}", object_, dice.randrange(-8, 9) / 4, dice.choice([None, 0, 1]))


def _text(dice):
    return "\n\n".join(f"# Part {n}\n\nOn {dice.choice(WORDS)} number {dice.randrange(99)}." for n in range(3))


def _lines(dice, context="kb", create=None):
    path = dice.choice(PATHS)
    yield {"taguru_batch": 1, "context": context, "source": path, **({} if create is None else {"create": create})}
    if dice.random() < 0.7:
        yield {"passage": _text(dice)}
    is_pointed = False
    for fact in [_fact(dice) for _ in range(dice.randrange(5))]:
        yield {"subject": fact.subject, "label": fact.label, "object": fact.object, "weight": fact.weight}
        is_pointed = True
    if is_pointed and dice.random() < 0.3:
        yield {"subject": "aliased", "label": "rel 0", "object": "other", "weight": 1.0}
        yield {"alias": "also aliased", "canonical": "aliased", "kind": "concept"}


async def _ingest(kit, dice):
    await kit.ingest(dice.choice(PATHS), _text(dice))


async def _import(kit, dice):
    await kit.load(*_lines(dice))


async def _try_import(kit, dice):
    await kit.load(*_lines(dice), dry_run=True)


async def _say(kit, dice):
    said = [SourcedAssertion(_fact(dice), dice.choice(["", *PATHS])) for _ in range(4)]
    await kit.graph.add_associations(T, "kb", said)


async def _retract_fact(kit, dice):
    fact = _fact(dice)
    await kit.graph.retract_association(T, "kb", fact.subject, fact.label, fact.object)


async def _retract_source(kit, dice):
    await kit.exchange.retract_source(T, "kb", dice.choice(PATHS))


async def _delete_source(kit, dice):
    await kit.sources.delete(T, "kb", dice.choice(PATHS))


async def _store(kit, dice):
    await kit.exchange.store_passages(T, "kb", StorePassagesIn(passages={dice.choice(PATHS): _text(dice)}))


async def _compact(kit, dice):
    await kit.graph.compact(T, "kb")


async def _drop(kit, dice):
    await kit.load(*_lines(dice, "brief", {}))
    await kit.contexts.delete(T, "brief")


async def _read(kit, dice):
    page = await kit.graph.query(T, "kb", limit=1_000)
    for fact in page.matches:
        stated = sum(one.weight for one in fact.attributions)
        counted = sum(one.count for one in fact.attributions)
        assert counted <= fact.count
        assert counted < fact.count or stated == fact.weight * fact.count


ACTIONS = (
    *(_ingest, _import, _import, _try_import, _say, _say, _say, _retract_fact, _retract_source),
    *(_delete_source, _store, _compact, _drop, _read),
)
# What one writer may find that another has taken away.
EXPECTED = (SOURCE_NOT_FOUND, CONTEXT_NOT_FOUND, CONTEXT_EXISTS)


async def _writer(kit, seed, until):
    dice, done = random.Random(seed), 0
    while time.monotonic() < until:
        action = dice.choice(ACTIONS)
        try:
            await asyncio.wait_for(action(kit, dice), 30)
            done += 1
        except StrataError as error:
            if error.kind not in EXPECTED:
                raise
    return done


async def test_writers_of_every_kind_leave_a_graph_whose_sums_names_and_feed_agree(database, settings):
    kit = make_kit(database, settings)
    try:
        await kit.load({"taguru_batch": 1, "context": "kb", "source": "first", "create": {}}, {"passage": "one"})
        until = time.monotonic() + SECONDS
        done = await asyncio.gather(*(_writer(kit, seed, until) for seed in range(WRITERS)))
        assert min(done) > 0
        await kit.sources.settle()
        await _check_graph(kit)
        await check(kit)
    finally:
        await kit.close()


async def _check_graph(kit):
    wrong_sums = await rows(
        kit,
        "SELECT association_id FROM association e LEFT JOIN attribution a "
        "USING (tenant_id, context_id, association_id) GROUP BY e.tenant_id, e.context_id, association_id "
        "HAVING count(a.attribution_id) = 0 OR e.weight <> sum(a.weight) OR e.count <> sum(a.count)",
    )
    assert not wrong_sums
    unused = await rows(
        kit,
        "SELECT name FROM concept c WHERE NOT EXISTS (SELECT FROM association e WHERE e.context_id = c.context_id "
        "AND concept_id IN (subject_id, object_id)) AND NOT EXISTS (SELECT FROM alias WHERE "
        "alias.concept_id = c.concept_id) UNION ALL SELECT name FROM label l WHERE NOT EXISTS (SELECT FROM "
        "association e WHERE e.label_id = l.label_id) AND NOT EXISTS (SELECT FROM alias WHERE "
        "alias.label_id = l.label_id)",
    )
    assert not unused
    feed = await rows(
        kit, "SELECT seq FROM context_change JOIN context USING (context_id) WHERE name = 'kb' ORDER BY 1"
    )
    (last,) = await rows(kit, "SELECT change_seq FROM context WHERE name = 'kb'")
    assert [row[0] for row in feed] == list(range(1, last[0] + 1))
    stored = await rows(
        kit,
        "SELECT s.name, l.name, o.name, e.weight / e.count, e.count FROM association e "
        "JOIN concept s ON s.concept_id = subject_id JOIN label l USING (label_id) "
        "JOIN concept o ON o.concept_id = object_id JOIN context x ON x.context_id = e.context_id WHERE x.name = 'kb'",
    )
    page = await kit.graph.query(T, "kb", limit=1_000)
    shown = sorted((one.subject, one.label, one.object, one.weight, one.count) for one in page.matches)
    assert shown == sorted(map(tuple, stored))
    assert page.total == len(stored) > 0


async def test_facts_that_come_in_while_their_source_is_replaced_go_with_what_it_said(database, settings, monkeypatch):
    kit = make_kit(database, settings)
    try:
        await kit.ingest("doc.md", "The first text.")
        await kit.say("doc.md", {"subject": "a", "label": "l", "object": "b", "weight": 1.0})
        found, asked = write_repository.asserting, []

        async def late(*arguments):
            asked.append(arguments[3])
            return [] if len(asked) == 1 else await found(*arguments)

        monkeypatch.setattr(write_repository, "asserting", late)
        await kit.ingest("doc.md", "The second text.")
        assert len(asked) == 4
        assert await facts(kit, "kb") == {}
        assert await kit.texts.lookup(T, "kb", ["doc.md"]) == ({"doc.md": "The second text."}, [])
    finally:
        await kit.close()


async def test_a_context_is_deleted_after_a_merge_of_its_index_not_beside_it(database, settings):
    kit = make_kit(database, settings)
    try:
        await kit.ingest("doc.md", "A text.")
        await kit.sources.settle()
        context = (await kit.contexts.get(T, "kb")).id
        async with database.work(T) as merging:
            assert await claim_merge(merging, T, context)
            deleting = asyncio.create_task(kit.contexts.delete(T, "kb"))
            await _waits_for_a_lock(kit)
            # A row that the deletion had locked could not be held.
            async with asyncio.timeout(5), database.work(T) as writing:
                await kit.contexts.hold(writing, T, context)
        await asyncio.wait_for(deleting, 10)
        assert not await rows(kit, "SELECT 1 FROM context")
    finally:
        await kit.close()


async def _waits_for_a_lock(kit):
    for _ in range(200):
        if await rows(kit, "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"):
            return
        await asyncio.sleep(0.02)
    raise AssertionError("nobody waits")


async def test_what_is_counted_meanwhile_does_not_take_the_counts_of_a_directory_away(database, settings, monkeypatch):
    kit = make_kit(database, settings)
    try:
        for name in ("one", "two"):
            await kit.contexts.create(T, name)
        await kit.graph.stats(T, "one")
        count = stats_repository.stats

        async def crowded(*arguments):
            kit.graph._stats.clear()  # as many others would
            return await count(*arguments)

        monkeypatch.setattr(stats_repository, "stats", crowded)
        async with database.work(T, snapshot=True) as connection:
            found = await kit.graph.stats_of(connection, T, await kit.contexts.rows(connection, T))
        assert [stats.associations for stats in found.values()] == [0, 0]
    finally:
        await kit.close()


async def test_a_context_that_was_just_filled_is_exported_without_walking_it_for_each_fact(database, settings):
    kit = make_kit(database, settings)
    try:
        lines = [{"subject": f"s{n}", "label": "l", "object": f"o{n}", "weight": 1.0} for n in range(20_000)]
        await kit.load({"taguru_batch": 1, "context": "kb", "source": "doc", "create": {}}, *lines)
        exported = await asyncio.wait_for(kit.export("kb"), 5)
        assert exported.count(b"\n") == 20_001
    finally:
        await kit.close()
