"""The same scenarios with the client's asynchronous form, and calls at the same time."""

import asyncio

import pytest
from taguru import AsyncTaguru

from wire.lighthouse import fact
from wire.public import listed, world
from wire.scenarios import every_scenario

pytestmark = pytest.mark.database


@pytest.mark.parametrize("scenario", every_scenario(), ids=lambda scenario: scenario.name)
async def test_the_asynchronous_client(scenario, server_url, name, tmp_path):
    opened = []

    def connect(**options):
        opened.append(AsyncTaguru(server_url, **{"timeout": 60, **options}))
        return opened[-1]

    here = world(connect, name, tmp_path)
    try:
        await scenario.steps(here)
    finally:
        for client in opened:
            await client.close()
    assert here.called >= scenario.methods


async def test_writes_at_the_same_time_all_arrive(server_url, name):
    async with AsyncTaguru(server_url, timeout=60) as client:
        await client.contexts.create(name)
        context = client.context(name)
        await asyncio.gather(
            *(context.add_associations([fact("s", "l", "o"), fact("s", "l", f"o{n}")]) for n in range(20)),
            *(context.store_passages({f"p{n}": f"text number {n}"}) for n in range(10)),
        )
        (match,) = (await context.query(subject="s", object="o")).matches
        assert (match.count, match.weight) == (20, 1.0)
        assert (await context.recall("s", limit=0)).total == 21
        assert len(await listed(context.iter_sources(limit=3))) == 10
