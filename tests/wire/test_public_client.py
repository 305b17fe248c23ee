"""The public Python client, unmodified, against a server of ours: every method it has, in its blocking form.

The scenarios hold for both forms of the client; test_public_client_async.py runs them with the other.
"""

import pytest
from taguru import SUPPORTED_HTTP_CONTRACTS, Taguru

from wire.lighthouse import FACTS, SOURCE, TEXT
from wire.public import KINDS, surface, world
from wire.scenarios import NOT_SERVED, every_scenario, exercised

pytestmark = pytest.mark.database


@pytest.mark.parametrize("scenario", every_scenario(), ids=lambda scenario: scenario.name)
async def test_the_blocking_client(scenario, server_url, name, tmp_path):
    opened = []

    def connect(**options):
        opened.append(Taguru(server_url, **{"timeout": 60, **options}))
        return opened[-1]

    here = world(connect, name, tmp_path)
    try:
        await scenario.steps(here)
    finally:
        for client in opened:
            client.close()
    assert here.called >= scenario.methods


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_method_of_the_client_has_a_scenario_or_a_reason(kind):
    assert surface(kind) - set(exercised()) == set(NOT_SERVED)
    assert set(exercised()) <= surface(kind)
    assert all(NOT_SERVED.values())


def test_both_forms_of_the_client_have_the_same_methods():
    assert surface("sync") == surface("async")


def test_the_client_finds_its_contract_and_a_whole_session_reads_as_in_its_manual(server_url, name):
    assert 1 in SUPPORTED_HTTP_CONTRACTS
    with Taguru(server_url) as client:
        client.wait_until_ready(timeout=10)
        client.contexts.create(name, description="lights")
        lights = client.context(name)
        lights.store_passages({SOURCE: TEXT})
        assert lights.add_associations(FACTS).applied == 5
        assert [match.object for match in lights.query(subject="Harrow Light", label="keeper").matches] == [
            "Ida Brandt"
        ]
        assert lights.assemble_evidence("Harrow Light").items
        assert client.contexts.delete(name)
