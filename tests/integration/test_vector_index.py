"""The vectors of a context in a real Postgres: stored, searched, deleted."""

from __future__ import annotations

from uuid import uuid4

import msgspec
import numpy as np
import pytest

from strata.errors import StrataError
from strata.lanes.vector import repository
from strata.lanes.vector.index import Eligible, Plan, SpaceRef
from strata.platform.ids import DEFAULT_TENANT
from vector_support import PER_SOURCE, SPACE, Lane, found, ids, made, passage, truth

pytestmark = pytest.mark.database

BLIND = {"hnsw.iterative_scan": "off"}


@pytest.fixture
def lane(database, settings):
    return Lane(database, settings)


async def test_a_small_space_is_searched_exactly(lane):
    rows, questions = made(500)
    assert await lane.fill(rows) == 500
    hits = await lane.search(questions[0], k=20)
    assert hits.plan is Plan.EXACT
    assert hits.is_exact
    assert found(hits) == truth(rows, questions[0], 20)
    assert [hit.cosine for hit in hits.hits] == pytest.approx(
        sorted((rows @ questions[0]).tolist(), reverse=True)[:20], abs=2e-3
    )


@pytest.mark.slow
async def test_a_filter_of_one_percent_gets_all_its_rows_and_the_right_ones(lane):
    """B-38: with ef_search 40 an index alone gives 0.4 of the 10 rows."""
    rows, questions = made(20_000, dimension=48)
    lane.settings = msgspec.structs.replace(lane.settings, vector_ef_search=40)
    for start in range(0, len(rows), 4_000):
        async with lane.database.work(DEFAULT_TENANT) as connection:
            await repository.insert_vectors(
                connection,
                DEFAULT_TENANT,
                lane.context,
                SPACE,
                ids(len(rows))[start : start + 4_000],
                rows[start : start + 4_000],
            )
    lane.rows = rows
    assert await lane.build()
    rng = np.random.default_rng(5)
    serials = rng.choice(5_000, 50, replace=False) + 1
    places = [place for place in range(len(rows)) if place // PER_SOURCE + 1 in set(serials.tolist())]
    eligible = Eligible(serials.tolist(), len(places))
    for exact_limit, plan in ((10_000, Plan.EXACT), (0, Plan.INDEX)):
        shares = []
        for query in questions[:25]:
            hits = await lane.search(query, exact_limit=exact_limit, eligible=eligible)
            assert len(hits.hits) == 10
            assert hits.plan is plan
            shares.append(len(set(found(hits)) & set(truth(rows, query, 10, places))) / 10)
        assert np.mean(shares) >= 0.95


async def test_equal_cosines_come_by_id_and_the_cut_is_among_them(lane):
    rows, _ = made(60)
    rows[10:50] = rows[10]
    await lane.fill(rows)
    hits = await lane.search(rows[10], k=7)
    assert found(hits) == [passage(place) for place in range(10, 17)]
    await lane.build()
    hits = await lane.search(rows[10], k=40, exact_limit=0)
    assert found(hits) == [passage(place) for place in range(10, 50)]


async def test_further_passages_get_their_true_cosine_or_none(lane):
    rows, questions = made(100)
    await lane.fill(rows)
    await lane.build()
    asked = [passage(7), 12345, passage(3), passage(7)]
    for exact_limit in (0, 1_000):
        hits = await lane.search(questions[1], k=1, also=asked, exact_limit=exact_limit)
        seven, unknown, three, again = hits.also
        assert unknown is None
        assert seven == again == pytest.approx(float(rows[7] @ questions[1]), abs=2e-3)
        assert three == pytest.approx(float(rows[3] @ questions[1]), abs=2e-3)


@pytest.mark.parametrize("exact_limit", [0, 1_000])
async def test_an_empty_space_gives_nothing(lane, exact_limit):
    lane.rows = np.zeros((0, 32), np.float32)
    await lane.build()
    hits = await lane.search(made(1)[0][0], also=[1], exact_limit=exact_limit)
    assert (found(hits), list(hits.also)) == ([], [None])
    wrong_count = SpaceRef(SPACE, 32, 500, is_indexed=True)
    assert found(await lane.search(made(1)[0][0], space=wrong_count, exact_limit=exact_limit)) == []


@pytest.mark.parametrize("exact_limit", [0, 1_000])
async def test_more_than_there_are_gives_all(lane, exact_limit):
    rows, questions = made(90)
    await lane.fill(rows)
    await lane.build()
    hits = await lane.search(questions[0], k=1_000, exact_limit=exact_limit)
    assert found(hits) == truth(rows, questions[0], 1_000) or set(found(hits)) == set(ids(90))
    assert found(await lane.search(questions[0], k=0, exact_limit=exact_limit)) == []
    eligible = Eligible([1, 2, 900], 8)
    hits = await lane.search(questions[0], k=1_000, exact_limit=exact_limit, eligible=eligible)
    assert set(found(hits)) == set(ids(8))
    assert found(await lane.search(questions[0], exact_limit=exact_limit, eligible=Eligible([], 0))) == []


async def test_a_query_that_is_no_vector_of_the_space_is_refused(lane):
    rows, _ = made(20)
    await lane.fill(rows)
    for query, named in (
        (made(1, dimension=48)[0][0], ("48", "32")),
        (np.full(32, np.nan, np.float32), ("NaN",)),
        (np.full(32, np.inf, np.float32), ("infinity",)),
        (np.zeros(32, np.float32), ("zero",)),
    ):
        with pytest.raises(StrataError) as refused:
            await lane.search(query)
        assert refused.value.code == "embedding_refused"
        assert all(word in refused.value.detail for word in named)


async def test_vectors_that_do_not_fit_their_passages_are_refused_whole(lane):
    rows, _ = made(20)
    spoilt = rows.copy()
    spoilt[3, 3] = np.nan
    zero = rows.copy()
    zero[19] = 0
    async with lane.database.work(DEFAULT_TENANT) as connection:
        for given, passages in ((rows, ids(19)), (spoilt, ids(20)), (zero, ids(20)), (rows[0], ids(1))):
            with pytest.raises(StrataError) as refused:
                await repository.insert_vectors(connection, DEFAULT_TENANT, lane.context, SPACE, passages, given)
            assert refused.value.code == "embedding_refused"
        none = await repository.insert_vectors(connection, DEFAULT_TENANT, lane.context, SPACE, [], rows[:0])
        assert none == 0
    lane.rows = rows
    assert found(await lane.search(rows[0])) == []


async def test_a_passage_keeps_the_vector_it_has(lane):
    rows, _ = made(20)
    assert await lane.fill(rows) == 20
    assert await lane.fill(rows[::-1].copy()) == 0
    assert found(await lane.search(rows[4], k=1)) == [passage(4)]


async def test_where_the_index_gives_too_few_rows_all_are_compared(lane):
    rows, questions = made(3_000)
    lane.settings = msgspec.structs.replace(lane.settings, vector_ef_search=10)
    await lane.fill(rows)
    await lane.build()
    query = questions[0]
    far = sorted((np.argsort((rows @ query).reshape(-1, PER_SOURCE).max(axis=1))[:40] + 1).tolist())
    eligible = Eligible(far, len(far) * PER_SOURCE)
    places = [place for place in range(len(rows)) if place // PER_SOURCE + 1 in set(far)]
    hits = await lane.search(query, exact_limit=0, eligible=eligible, local=BLIND)
    assert hits.plan is Plan.FALLBACK
    assert hits.is_exact
    assert found(hits) == truth(rows, query, 10, places)


@pytest.mark.parametrize("serials", [[3, 9, 40], [3, 9, 40, 10**12]])
@pytest.mark.parametrize("exact_limit", [0, 10_000])
async def test_a_filter_keeps_to_its_sources_however_far_apart_they_are(lane, serials, exact_limit):
    rows, questions = made(1_000)
    await lane.fill(rows)
    await lane.build()
    places = [place for place in range(len(rows)) if place // PER_SOURCE + 1 in set(serials)]
    hits = await lane.search(questions[3], exact_limit=exact_limit, eligible=Eligible(serials, 12), k=5)
    assert found(hits) == truth(rows, questions[3], 5, places)


@pytest.mark.parametrize("exact_limit", [0, 10_000])
async def test_what_is_deleted_is_never_found_again(lane, exact_limit):
    rows, questions = made(800)
    await lane.fill(rows)
    await lane.fill(rows[:100], space=SPACE + 1)
    lane.rows = rows
    await lane.build()
    query = questions[0]
    gone = sorted({passage_id >> 20 for passage_id in truth(rows, query, 12)})
    counts = await lane.delete(*gone, 10**6)
    assert counts[SPACE] == len(gone) * PER_SOURCE
    left = [place for place in range(len(rows)) if place // PER_SOURCE + 1 not in set(gone)]
    space = SpaceRef(SPACE, 32, len(left), is_indexed=True)
    hits = await lane.search(query, exact_limit=exact_limit, space=space, also=[passage((gone[0] - 1) * PER_SOURCE)])
    assert len(hits.hits) == 10
    assert not {hit.passage_id >> 20 for hit in hits.hits} & set(gone)
    assert list(hits.also) == [None]
    assert await lane.delete(*gone) == {}
    assert await lane.delete() == {}


async def test_a_space_and_a_context_can_be_emptied(lane):
    rows, _ = made(50)
    await lane.fill(rows)
    await lane.fill(rows, space=SPACE + 1)
    async with lane.database.work(DEFAULT_TENANT) as connection:
        removed = [
            await repository.delete_space(connection, DEFAULT_TENANT, lane.context, SPACE, limit=30) for _ in range(3)
        ]
        assert removed == [30, 20, 0]
        await repository.delete_context(connection, DEFAULT_TENANT, lane.context)
        assert await repository.delete_vectors(connection, DEFAULT_TENANT, lane.context, range(1, 20)) == {}


async def test_a_foreign_tenant_finds_nothing_by_either_way(lane):
    rows, _ = made(300)
    await lane.fill(rows)
    await lane.build()
    for exact_limit in (0, 1_000):
        hits = await lane.search(rows[0], exact_limit=exact_limit, tenant=uuid4(), also=[passage(0)])
        assert (found(hits), list(hits.also)) == ([], [None])
    other = Lane(lane.database, lane.settings)
    other.rows = rows
    assert found(await other.search(rows[0], exact_limit=0)) == []


async def test_a_read_only_transaction_is_enough(lane):
    rows, _ = made(300)
    await lane.fill(rows)
    await lane.build()
    for exact_limit in (0, 1_000):
        local = {"transaction_read_only": "on"}
        assert found(await lane.search(rows[5], k=1, exact_limit=exact_limit, local=local)) == [passage(5)]


async def test_a_search_that_takes_too_long_ends_as_a_statement_timeout(lane):
    rows, _ = made(30)
    await lane.fill(rows)
    async with lane.database.owner() as owner, owner.transaction():
        await owner.execute("LOCK TABLE passage_vector")
        for exact_limit in (0, 1_000):
            with pytest.raises(StrataError) as late:
                await lane.search(rows[0], exact_limit=exact_limit, timeout=0.1)
            assert late.value.code == "statement_timeout"
