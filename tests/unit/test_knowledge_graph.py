"""The parts of the stored graph that need no database."""

from __future__ import annotations

import asyncio
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strata.errors import CONFLICT, INVALID_REQUEST, OVER_LIMIT, StrataError
from strata.graph.model import EdgeRows, Graph
from strata.graph.vocabulary import Namespace
from strata.knowledge.graph_cache import GraphCache
from strata.knowledge.graph_checks import (
    Issues,
    Names,
    plan_aliases,
    pointer_of,
    problem_of_name,
    require_at_most,
)
from strata.knowledge.graph_model import AliasRow
from strata.knowledge.locks import graph_lock_key

ONE, TWO = UUID(int=1), UUID(int=2)


def graph(revision: int, names: int = 3) -> Graph:
    return Graph.build(
        revision, [(n, f"c{n}") for n in range(names)], [(0, "l")], (), EdgeRows.of([(1, 0, 0, 1, 1.0, 1)])
    )


class Loads:
    """Loads a graph, slowly, and counts how often."""

    def __init__(self, made: Graph) -> None:
        self.made = made
        self.times = 0

    async def __call__(self) -> Graph:
        self.times += 1
        await asyncio.sleep(0.01)
        return self.made


async def test_callers_at_one_moment_share_one_load():
    cache, load = GraphCache(1 << 20), Loads(graph(1))
    found = await asyncio.gather(*(cache.get(ONE, TWO, 1, load) for _ in range(10)))
    assert all(one is load.made for one in found)
    assert load.times == 1
    assert await cache.get(ONE, TWO, 1, load) is load.made
    assert load.times == 1


async def test_a_load_that_fails_or_is_cancelled_is_tried_by_the_others():
    cache, load = GraphCache(1 << 20), Loads(graph(1))

    async def broken() -> Graph:
        await asyncio.sleep(0.01)
        raise ValueError("no")

    first = asyncio.create_task(cache.get(ONE, TWO, 1, broken))
    await asyncio.sleep(0)
    assert await cache.get(ONE, TWO, 1, load) is load.made
    with pytest.raises(ValueError, match="no"):
        await first
    slow = asyncio.create_task(cache.get(ONE, TWO, 2, Loads(graph(2))))
    await asyncio.sleep(0)
    other = asyncio.create_task(cache.get(ONE, TWO, 2, load))
    await asyncio.sleep(0)
    slow.cancel()
    assert await other is load.made


async def test_a_newer_revision_takes_the_place_of_an_older_one():
    cache = GraphCache(1 << 20)
    first, second = Loads(graph(1)), Loads(graph(2))
    await cache.get(ONE, TWO, 1, first)
    size = cache.size_bytes
    await cache.get(ONE, TWO, 2, second)
    assert cache.size_bytes == size
    await cache.get(ONE, TWO, 1, first)
    assert first.times == 2, "a reader of an older state loads it"
    await cache.get(ONE, TWO, 2, second)
    assert second.times == 1, "and the newer one stays"


async def test_the_cache_is_bounded_and_tenants_do_not_share():
    loads = {number: Loads(graph(1, 100)) for number in range(6)}
    single = GraphCache(1 << 30)
    await single.get(ONE, TWO, 1, loads[0])
    cache = GraphCache(single.size_bytes * 3)
    for number, load in loads.items():
        await cache.get(ONE, UUID(int=number), 1, load)
    assert cache.size_bytes <= single.size_bytes * 3
    await cache.get(ONE, UUID(int=5), 1, loads[5])
    assert loads[5].times == 1
    await cache.get(TWO, UUID(int=5), 1, loads[5])
    assert loads[5].times == 2
    none = GraphCache(0)
    load = Loads(graph(1))
    found = await asyncio.gather(*(none.get(ONE, TWO, 1, load) for _ in range(5)))
    assert load.times == 1
    assert all(one is load.made for one in found)
    assert none.size_bytes == 0


@pytest.mark.parametrize(
    ("path", "pointer"),
    [
        ("associations[1].subject", "/associations/1/subject"),
        ("batches[2].concepts['a/b~c']", "/batches/2/concepts/a~1b~0c"),
        ("concepts['it's.[odd]']", "/concepts/it's.[odd]"),
        ("types['T'].is_a", "/types/T/is_a"),
        ("mode", "/mode"),
    ],
)
def test_the_path_of_an_issue_is_a_pointer(path, pointer):
    assert pointer_of(path) == pointer


@given(st.text(max_size=40))
def test_every_path_gives_a_pointer(path):
    assert pointer_of(f"concepts['{path}']").startswith("/concepts")


def test_issues_refuse_only_where_there_are_some():
    issues = Issues("batches[0].")
    issues.refuse(CONFLICT, "never")
    for number in range(30):
        issues.add(f"x[{number}]", "range", "less", "more")
    with pytest.raises(StrataError) as raised:
        issues.refuse(INVALID_REQUEST, "Wrong")
    assert raised.value.pointer == "/batches/0/x/0"
    assert (len(raised.value.extra["issues"]), raised.value.extra["issues_total"]) == (20, 30)
    with pytest.raises(StrataError) as raised:
        require_at_most(3, 2, "things", "/things")
    assert raised.value.kind is OVER_LIMIT


@given(st.text())
def test_a_name_is_fit_exactly_where_the_database_takes_it(name):
    fits = problem_of_name(name) is None
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        assert not fits
    else:
        assert fits == (0 < size <= 1024 and "\x00" not in name)


def planned(aliases, spelled=(), canonical=(), names=None):
    issues = Issues()
    rows = [AliasRow(alias, name, Namespace.CONCEPT) for alias, name in aliases]
    plan = plan_aliases(issues, rows, dict(spelled), dict(canonical), names or Names({}, {}))
    return plan, [issue.kind for issue in issues.first]


def test_aliases_are_planned_in_their_order():
    assert planned([("x", "a"), ("y", "x")], canonical={"a": 1}) == ({"x": 1, "y": 1}, [])
    assert planned([("y", "x"), ("x", "a")], canonical={"a": 1}) == ({"x": 1}, ["unknown_reference"])
    assert planned([("x", "a"), ("x", "b")], canonical={"a": 1, "b": 2}) == ({"x": 1}, ["conflict"])
    assert planned([("x", "a")], spelled={"x": 1}, canonical={"a": 1}) == ({}, [])
    assert planned([("a", "a")], spelled={"a": 1}, canonical={"a": 1}) == ({}, [])
    assert planned([("b", "a")], spelled={"b": 2}, canonical={"a": 1}) == ({}, ["conflict"])
    fresh = Names({"New": "new", "Old": 1}, {"new": "New"})
    assert planned([("n", "New")], canonical={"New": "new"}, names=fresh) == ({"n": "new"}, [])
    assert planned([("New", "Old")], canonical={"Old": 1}, names=fresh) == ({}, ["conflict"])


@given(st.uuids(), st.uuids())
def test_a_lock_key_fits_a_bigint_and_is_the_context_s_own(one, two):
    assert -(2**63) <= graph_lock_key(one) < 2**63
    assert (graph_lock_key(one) == graph_lock_key(two)) == (one == two)
