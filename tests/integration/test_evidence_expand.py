"""A second hop in the passage lane of an evidence package, over the wire."""

from __future__ import annotations

import pytest

from assembly_support import passages, serving
from embedding_support import WordEmbedder
from strata.platform.ids import DEFAULT_TENANT
from wire.accounting import read

pytestmark = pytest.mark.database


@pytest.fixture
def embedder():
    """Of so many dimensions that unequal words hardly meet."""
    return WordEmbedder(dimension=1024)


TWO_STEPS = "In which village was the composer of The Salt Road born?"
FIRST_STEP = "The composer of The Salt Road is Miriam Oduya Haldorsen."
# It shares no word with the question: only the first step names the person.
SECOND_STEP = "Miriam Oduya Haldorsen comes from Skarvik harbour."
TEXTS = {
    "film/salt-road.md": FIRST_STEP,
    "people/oduya.md": SECOND_STEP,
    **{f"n/{n}.md": f"Road {n} leads past {n * 3} fields and {n * 7} barns." for n in range(40)},
}


async def test_expand_brings_in_what_the_first_search_does_not_and_without_it_no_byte_changes(
    settings, embedding_services
):
    async with serving(settings, embedding_services) as api:
        path = await api.context("kb")
        await api.send("POST", f"{path}/sources", {"passages": TEXTS})
        await embedding_services.embeddings.run(DEFAULT_TENANT)

        async def package(**asked):
            # Unequal words have a cosine of nearly 0, which the default floor would leave out.
            text = await api.evidence_text(
                "kb", **asked, text_fallback_query=TWO_STEPS, search_limit=3, semantic_floor=0
            )
            return text.partition('"time":')[0], passages(read(text)["result"])

        plain, once = await package()
        expanded, twice = await package(expand=True)
        assert once[0] == ("film/salt-road.md", 0)
        assert ("people/oduya.md", 0) not in once
        assert twice[:2] == [("film/salt-road.md", 0), ("people/oduya.md", 0)]
        assert expanded != plain
        assert await package(expand=False) == (plain, once)
        assert await package() == (plain, once)
