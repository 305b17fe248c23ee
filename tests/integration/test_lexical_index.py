"""The lexical index in a real Postgres, beside writers, deleters and merges."""

from __future__ import annotations

import asyncio
import random
from uuid import uuid4

import pytest

from strata.lanes.lexical import repository
from strata.lanes.lexical.index import LexicalIndex
from strata.lanes.lexical.merge import MergeReport, merge_context, needs_merge
from strata.lanes.lexical.segment import build_segments
from strata.platform.ids import DEFAULT_TENANT, SERIAL_BITS
from strata.text.tokenise import ANALYSER_VERSION, QueryTerm, analyse, analyse_query

pytestmark = pytest.mark.database

WORDS = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa"]


@pytest.fixture
async def context(database):
    return await new_context(database)


async def new_context(database, tenant=DEFAULT_TENANT):
    context = uuid4()
    async with database.work(tenant) as connection:
        await connection.execute(
            "INSERT INTO context (tenant_id, context_id, name) VALUES ($1, $2, $3)", tenant, context, str(context)
        )
    return context


def term(word, weight=1.0):
    return QueryTerm(word, weight, (0,), word)


async def ingest(database, context, serial, texts, replaces=None):
    """Write a source as an ingest does: the old revision's passages die where the new one's appear."""
    async with database.work(DEFAULT_TENANT) as connection:
        if replaces is not None:
            await repository.kill_sources(connection, DEFAULT_TENANT, context, [replaces])
        passages = [((serial << SERIAL_BITS) | at, analyse(text, "en")) for at, text in enumerate(texts)]
        for data in build_segments(passages):
            await repository.add_segment(connection, DEFAULT_TENANT, context, data)


async def kill(database, context, *serials):
    async with database.work(DEFAULT_TENANT) as connection:
        return await repository.kill_sources(connection, DEFAULT_TENANT, context, serials)


async def search(database, index, context, terms, *, k=10, eligible=None, tenant=DEFAULT_TENANT):
    async with database.work(tenant, snapshot=True) as connection:
        return await index.search(connection, tenant, context, terms, k=k, eligible=eligible)


async def fresh_result(database, live, terms, k=10):
    """What a new index of exactly the live texts answers."""
    context = await new_context(database)
    passages = [(pid, analyse(text, "en")) for pid, text in live.items()]
    async with database.work(DEFAULT_TENANT) as connection:
        for data in build_segments(passages):
            await repository.add_segment(connection, DEFAULT_TENANT, context, data)
    return await search(database, LexicalIndex(1 << 20), context, terms, k=k)


async def test_a_source_is_found_when_its_transaction_commits_and_not_before(database, context):
    index = LexicalIndex(1 << 20)
    async with database.work(DEFAULT_TENANT) as connection:
        data = build_segments([(1 << SERIAL_BITS, analyse("alpha beta", "en"))])[0]
        await repository.add_segment(connection, DEFAULT_TENANT, context, data)
        assert not (await search(database, index, context, [term("alpha")])).hits
    found = await search(database, index, context, [term("alpha"), term("absent"), term("beta")])
    assert [hit.passage_id for hit in found.hits] == [1 << SERIAL_BITS]
    assert found.hits[0].matched == 0b101
    assert found.frequencies == {"alpha": 1, "absent": 0, "beta": 1}
    assert found.passages == 1
    assert not found.stale


async def test_an_empty_context_answers(database, context):
    found = await search(database, LexicalIndex(1 << 20), context, [term("alpha")])
    assert (found.hits, found.passages, found.frequencies) == ([], 0, {"alpha": 0})
    assert (await search(database, LexicalIndex(1 << 20), context, [])).hits == []


async def test_a_replaced_source_is_seen_whole_old_or_whole_new(database, context):
    index = LexicalIndex(1 << 20)
    await ingest(database, context, 1, ["alpha one", "alpha two"])
    await search(database, index, context, [term("alpha")])
    await ingest(database, context, 2, ["alpha three"], replaces=1)
    found = await search(database, index, context, [term("alpha")])
    assert [hit.passage_id >> SERIAL_BITS for hit in found.hits] == [2]
    assert found.passages == 1


async def test_a_snapshot_does_not_see_what_commits_after_it(database, context):
    index = LexicalIndex(1 << 20)
    await ingest(database, context, 1, ["alpha"])
    async with database.work(DEFAULT_TENANT, snapshot=True) as connection:
        before = await index.search(connection, DEFAULT_TENANT, context, [term("alpha")], k=5)
        await kill(database, context, 1)
        await merge_context(database, DEFAULT_TENANT, context, purge=True)
        again = await index.search(connection, DEFAULT_TENANT, context, [term("alpha"), term("beta")], k=5)
    assert len(before.hits) == len(again.hits) == 1
    assert not (await search(database, index, context, [term("alpha")])).hits


async def test_killing_counts_once_and_knows_unknown_sources(database, context):
    await ingest(database, context, 1, ["alpha", "beta"])
    await ingest(database, context, 3, ["alpha"])
    assert await kill(database, context, 1) == 2
    assert await kill(database, context, 1, 2, 99) == 0
    assert await kill(database, context) == 0
    found = await search(database, LexicalIndex(0), context, [term("alpha")])
    assert [hit.passage_id >> SERIAL_BITS for hit in found.hits] == [3]


async def test_filters_apply_before_the_best_are_taken(database, context):
    for serial in range(1, 30):
        await ingest(database, context, serial, ["alpha " * (30 - serial) + "beta"])
    found = await search(database, LexicalIndex(1 << 20), context, [term("alpha")], k=3, eligible=[28, 29, 77])
    assert sorted(hit.passage_id >> SERIAL_BITS for hit in found.hits) == [28, 29]
    assert found.frequencies == {"alpha": 29}
    assert not (await search(database, LexicalIndex(1 << 20), context, [term("alpha")], eligible=[])).hits


async def test_another_tenant_and_context_see_nothing(database, context):
    other_tenant, other_context = uuid4(), await new_context(database)
    index = LexicalIndex(1 << 20)
    await ingest(database, context, 1, ["alpha"])
    assert (await search(database, index, context, [term("alpha")])).hits
    assert not (await search(database, index, other_context, [term("alpha")])).hits
    foreign = await search(database, index, context, [term("alpha")], tenant=other_tenant)
    assert (foreign.hits, foreign.passages) == ([], 0)


async def test_the_score_of_a_passage_outside_the_list_can_be_had(database, context):
    await ingest(database, context, 1, ["alpha alpha", "alpha beta gamma delta"])
    found = await search(database, LexicalIndex(1 << 20), context, [term("alpha")], k=1)
    second = (1 << SERIAL_BITS) | 1
    scored = found.of([second, 12345])
    assert [hit.passage_id for hit in scored] == [second, 12345]
    assert 0 < scored[0].score < found.hits[0].score
    assert scored[1].score == 0


async def test_merging_changes_no_result_and_leaves_few_segments(database, context):
    rng = random.Random(3)
    live = {}
    for serial in range(1, 41):
        texts = [" ".join(rng.choices(WORDS, k=8)) for _ in range(3)]
        await ingest(database, context, serial, texts)
        live.update({(serial << SERIAL_BITS) | at: text for at, text in enumerate(texts)})
    await kill(database, context, 5, 6)
    live = {pid: text for pid, text in live.items() if pid >> SERIAL_BITS not in (5, 6)}
    index, terms = LexicalIndex(1 << 20), [term("alpha"), term("beta", 0.3)]
    before = await search(database, index, context, terms)
    async with database.work(DEFAULT_TENANT) as connection:
        assert await needs_merge(connection, DEFAULT_TENANT, context)
    report = await merge_context(database, DEFAULT_TENANT, context)
    after = await search(database, index, context, terms)
    fresh = await fresh_result(database, live, terms)
    assert report.dropped_passages == 6
    assert before.hits == after.hits == fresh.hits
    assert after.frequencies == fresh.frequencies
    async with database.work(DEFAULT_TENANT) as connection:
        assert len(await repository.list_segments(connection, DEFAULT_TENANT, context)) < 16
        assert not await needs_merge(connection, DEFAULT_TENANT, context)


async def test_a_purge_takes_the_last_bytes_of_a_deleted_source(database, context):
    await ingest(database, context, 1, ["secretword alpha"])
    await ingest(database, context, 2, ["alpha"])
    await merge_context(database, DEFAULT_TENANT, context)
    await kill(database, context, 1)
    report = await merge_context(database, DEFAULT_TENANT, context, purge=True)
    assert report == MergeReport(replaced=1, written=0, dropped_passages=1)
    async with database.work(DEFAULT_TENANT) as connection:
        rows = await connection.fetch("SELECT term FROM lexical_posting")
        segments = await repository.list_segments(connection, DEFAULT_TENANT, context)
    assert len(rows) == 1
    assert [segment.passages for segment in segments] == [1]


async def test_a_segment_of_an_older_analyser_is_purged_under_its_own_stamp_and_dropped_once_all_dead(
    database, context
):
    older = ANALYSER_VERSION - 1
    passages = [(serial << SERIAL_BITS, analyse(text, "en")) for serial, text in ((1, "secretword"), (2, "alpha"))]
    async with database.work(DEFAULT_TENANT) as connection:
        for data in build_segments(passages):
            await repository.add_segment(connection, DEFAULT_TENANT, context, data, analyser=older)
    await ingest(database, context, 3, ["alpha"])
    await kill(database, context, 1)
    assert await merge_context(database, DEFAULT_TENANT, context) == MergeReport()
    report = await merge_context(database, DEFAULT_TENANT, context, purge=True)
    assert report == MergeReport(replaced=1, written=1, dropped_passages=1)
    async with database.work(DEFAULT_TENANT) as connection:
        segments = await repository.list_segments(connection, DEFAULT_TENANT, context)
    assert sorted((segment.analyser, segment.passages) for segment in segments) == [(older, 1), (ANALYSER_VERSION, 1)]
    await kill(database, context, 2)
    assert (await merge_context(database, DEFAULT_TENANT, context)).dropped_passages == 1
    found = await search(database, LexicalIndex(1 << 20), context, [term("alpha")])
    assert [hit.passage_id >> SERIAL_BITS for hit in found.hits] == [3]
    assert not found.stale


async def test_what_dies_during_a_merge_is_dead_in_its_result(database, context, monkeypatch):
    for serial in range(1, 9):
        await ingest(database, context, serial, ["alpha"])
    merging, killed = asyncio.Event(), asyncio.Event()
    drop = repository.drop_postings

    async def slow_drop(*args):
        await drop(*args)
        merging.set()
        await killed.wait()

    monkeypatch.setattr(repository, "drop_postings", slow_drop)
    merge = asyncio.create_task(merge_context(database, DEFAULT_TENANT, context))
    await merging.wait()
    assert await kill(database, context, 3) == 1
    monkeypatch.setattr(repository, "drop_postings", drop)
    killed.set()
    await merge
    found = await search(database, LexicalIndex(1 << 20), context, [term("alpha")])
    assert [hit.passage_id >> SERIAL_BITS for hit in found.hits] == [1, 2, 4, 5, 6, 7, 8]
    assert found.passages == 7


async def test_a_deletion_that_waits_for_a_merge_marks_the_merged_segment(database, context, monkeypatch):
    for serial in range(1, 9):
        await ingest(database, context, serial, ["alpha"])
    locked, go = asyncio.Event(), asyncio.Event()
    drop = repository.drop_segments

    async def slow_drop(*args):
        locked.set()
        await go.wait()
        await drop(*args)

    monkeypatch.setattr(repository, "drop_segments", slow_drop)
    merge = asyncio.create_task(merge_context(database, DEFAULT_TENANT, context))
    await locked.wait()
    deletion = asyncio.create_task(kill(database, context, 3))
    await asyncio.sleep(0.2)
    assert not deletion.done()
    go.set()
    await merge
    assert await deletion == 1
    found = await search(database, LexicalIndex(1 << 20), context, [term("alpha")])
    assert [hit.passage_id >> SERIAL_BITS for hit in found.hits] == [1, 2, 4, 5, 6, 7, 8]


async def test_a_second_merge_of_the_context_stands_aside(database, context, monkeypatch):
    for serial in range(1, 9):
        await ingest(database, context, serial, ["alpha"])
    claimed, go = asyncio.Event(), asyncio.Event()
    read = repository.read_arrays

    async def slow_read(*args):
        claimed.set()
        await go.wait()
        return await read(*args)

    monkeypatch.setattr(repository, "read_arrays", slow_read)
    first = asyncio.create_task(merge_context(database, DEFAULT_TENANT, context))
    await claimed.wait()
    assert (await merge_context(database, DEFAULT_TENANT, context)).busy
    go.set()
    assert (await first).replaced == 8


async def test_a_failed_merge_leaves_everything_as_it_was(database, context, monkeypatch):
    for serial in range(1, 9):
        await ingest(database, context, serial, ["alpha"])

    async def broken(*args):
        raise OSError("disk on fire")

    with monkeypatch.context() as patch:
        patch.setattr(repository, "drop_segments", broken)
        with pytest.raises(OSError, match="fire"):
            await merge_context(database, DEFAULT_TENANT, context)
    found = await search(database, LexicalIndex(1 << 20), context, [term("alpha")])
    assert len(found.hits) == 8
    assert (await merge_context(database, DEFAULT_TENANT, context)).written == 1


async def test_deleting_the_index_leaves_no_row(database, context):
    await ingest(database, context, 1, ["alpha"])
    async with database.work(DEFAULT_TENANT) as connection:
        await repository.delete_index(connection, DEFAULT_TENANT, context)
        assert await connection.fetchval("SELECT count(*) FROM lexical_posting") == 0
        assert await connection.fetchval("SELECT count(*) FROM lexical_segment") == 0


async def test_segments_of_another_analyser_are_searched_and_reported(database, context):
    await ingest(database, context, 1, ["alpha"])
    async with database.work(DEFAULT_TENANT) as connection:
        await connection.execute("UPDATE lexical_segment SET analyser = 0")
    found = await search(database, LexicalIndex(1 << 20), context, [term("alpha")])
    assert found.stale
    assert len(found.hits) == 1


async def test_a_warm_search_makes_two_statements_then_one(database, context):
    await ingest(database, context, 1, ["alpha beta"])
    index = LexicalIndex(1 << 20)
    for expected in (3, 1):
        async with database.work(DEFAULT_TENANT, snapshot=True) as connection:
            counting = _Counting(connection)
            await index.search(counting, DEFAULT_TENANT, context, [term("alpha"), term("absent")], k=5)
        assert counting.statements == expected
    async with database.work(DEFAULT_TENANT, snapshot=True) as connection:
        counting = _Counting(connection)
        await index.search(counting, DEFAULT_TENANT, context, [term("alpha"), term("beta")], k=5)
    assert counting.statements == 2


class _Counting:
    def __init__(self, connection):
        self._connection = connection
        self.statements = 0

    def __getattr__(self, name):
        self.statements += 1
        return getattr(self._connection, name)


async def test_writers_deleters_a_merger_and_searchers_agree_with_a_fresh_index(database, context):
    live: dict[int, str] = {}
    serials = iter(range(1, 100_000))
    stop = asyncio.Event()
    index = LexicalIndex(1 << 20)

    async def writer(seed):
        rng = random.Random(seed)
        current = None
        for _ in range(25):
            serial = next(serials)
            texts = [" ".join(rng.choices(WORDS, k=rng.randint(1, 12))) for _ in range(rng.randint(1, 5))]
            await ingest(database, context, serial, texts, replaces=current)
            for pid in [pid for pid in live if pid >> SERIAL_BITS == current]:
                del live[pid]
            live.update({(serial << SERIAL_BITS) | at: text for at, text in enumerate(texts)})
            current = serial
            if rng.random() < 0.3:
                await kill(database, context, current)
                for pid in [pid for pid in live if pid >> SERIAL_BITS == current]:
                    del live[pid]
                current = None
            elif rng.random() < 0.4:
                current = None

    async def merger():
        while not stop.is_set():
            await merge_context(database, DEFAULT_TENANT, context, purge=random.random() < 0.3)
            await asyncio.sleep(0.01)

    async def searcher():
        while not stop.is_set():
            found = await search(database, index, context, [term("alpha"), term("beta")])
            assert all(hit.matched for hit in found.hits)
            assert found.frequencies["alpha"] <= found.passages

    background = [asyncio.create_task(merger()), asyncio.create_task(searcher())]
    await asyncio.gather(*(writer(seed) for seed in range(4)))
    stop.set()
    await asyncio.gather(*background)
    terms = [term(word, weight) for word, weight in zip(WORDS, (1, 0.5, 2, 0.1), strict=False)]
    found = await search(database, index, context, terms, k=1000)
    fresh = await fresh_result(database, live, terms, k=1000)
    assert found.passages == len(live)
    assert found.hits == fresh.hits
    assert found.frequencies == fresh.frequencies


async def test_accented_french_is_found_without_accents_and_its_decoy_is_not(database, context):
    await ingest(database, context, 1, ["L'église est fermée.", "Un eg, deux eg."])
    for query in ("eglise", "Église", "les églises"):
        found = await search(database, LexicalIndex(1 << 20), context, analyse_query(query, ["fr"]))
        assert [hit.passage_id for hit in found.hits] == [1 << SERIAL_BITS]
