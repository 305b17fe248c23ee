"""The scenarios of openspec/specs/vector that look twice: the second hop, and the turns beside a turn."""

from __future__ import annotations

import msgspec
import pytest

from embedding_support import WordEmbedder, WordEmbedders
from scenario_support import CONTEXT, ask, doc, put, row_of, sources
from strata.lookup.fit import DEFAULT_FIT
from strata.lookup.relevance import Cutoffs
from strata.lookup.schemas import BudgetRequest, Lane
from strata.platform.ids import DEFAULT_TENANT
from strata.services import compose

pytestmark = pytest.mark.database


@pytest.fixture
def embedder():
    """Of so many dimensions that unequal words hardly meet."""
    return WordEmbedder(dimension=1024)


async def embed(services) -> None:
    """Make every vector that is owed."""
    await services.embeddings.run(DEFAULT_TENANT, CONTEXT)


# The second step shares no word with the question: only the first names the person.
TWO_STEPS = "In which village was the composer of The Salt Road born?"
FIRST_STEP = doc("film/salt-road.md", "The composer of The Salt Road is Miriam Oduya Haldorsen.")
SECOND_STEP = doc("people/oduya.md", "Miriam Oduya Haldorsen comes from Skarvik harbour.")
ROADS = [doc(f"n/{n}.md", f"Road {n} leads past {n * 3} fields and {n * 7} barns.") for n in range(40)]


async def two_steps(services, *, layers=("L1",), expand=True, **asked):
    await put(services, FIRST_STEP, SECOND_STEP, *ROADS)
    await embed(services)
    return await ask(services, TWO_STEPS, top_k=3, layers=list(layers), expand=expand, **asked)


async def test_the_second_step_of_a_question_is_found_by_what_the_first_passage_says(embedding_services):
    result = await two_steps(embedding_services)
    assert sources(result)[:2] == ["film/salt-road.md", "people/oduya.md"]
    block = result.evidence_blocks[1]
    (place,) = [place for place in block.lane_ranks if place.lane == "hop"]
    assert f"L1_HOP:{place.rank}" in block.hit_reasons
    lane = (await row_of(embedding_services, result)).retrieval_details["lanes"]["hop"]
    assert lane["ran"]
    assert lane["candidates"] > 0


async def test_words_that_a_hint_adds_do_not_cost_what_a_second_hop_found(embedding_services):
    result = await two_steps(embedding_services, layers=("L0", "L1"))
    assert (await row_of(embedding_services, result)).retrieval_details["lanes"]["lexical_expanded"]["ran"]
    assert sources(result)[:2] == ["film/salt-road.md", "people/oduya.md"]


async def test_what_a_second_hop_leads_to_is_evidence_though_it_touches_nothing_that_was_asked(
    settings, database, embedder, tmp_path
):
    cutoffs = Cutoffs(high=0.8, medium=0.01, low=0.001)
    space = embedder.space.fingerprint.hex()
    by_words_alone = msgspec.structs.replace(
        DEFAULT_FIT, space=space, meaning=DEFAULT_FIT.words, cosine_weight=1.0, cutoffs=cutoffs
    )
    path = tmp_path / "fit.json"
    path.write_bytes(msgspec.json.encode(by_words_alone))
    fitted = msgspec.structs.replace(settings, relevance_fit=path)
    services = compose(fitted, database, embedders=WordEmbedders(embedder))
    result = await two_steps(services)
    alone = await ask(services, TWO_STEPS, top_k=50, lanes=[Lane.LEXICAL, Lane.VECTOR])
    await services.close()
    assert sources(result)[:2] == ["film/salt-road.md", "people/oduya.md"]
    assert "people/oduya.md" not in sources(alone)
    assert alone.omitted.by_reason["BELOW_FLOOR"] > 0


async def test_lanes_without_hop_search_once(embedding_services):
    result = await two_steps(embedding_services, lanes=[Lane.LEXICAL, Lane.VECTOR])
    assert sources(result)[0] == "film/salt-road.md"
    assert "people/oduya.md" not in sources(result)
    assert not any(place.lane == "hop" for block in result.evidence_blocks for place in block.lane_ranks)


async def test_only_a_call_that_expands_takes_a_second_hop(embedding_services):
    result = await two_steps(embedding_services, expand=None)
    assert "people/oduya.md" not in sources(result)
    assert "hop" not in (await row_of(embedding_services, result)).retrieval_details["lanes"]
    under_budget = await ask(embedding_services, TWO_STEPS, layers=["L1"], budget=BudgetRequest(max_items=3))
    assert sources(under_budget)[:2] == ["film/salt-road.md", "people/oduya.md"]


async def test_the_setting_turns_the_second_hop_off(settings, database, embedder):
    off = compose(msgspec.structs.replace(settings, second_hop="off"), database, embedders=WordEmbedders(embedder))
    result = await two_steps(off)
    await off.close()
    assert "people/oduya.md" not in sources(result)
    assert not any("L1_HOP" in reason for block in result.evidence_blocks for reason in block.hit_reasons)


async def test_without_a_passage_that_stands_out_there_is_no_second_hop(embedding_services):
    twins = [doc(f"t/{n}.md", f"The harbour crane lifts {n} crates a day.") for n in (7, 8)]
    await put(embedding_services, *twins)
    await embed(embedding_services)
    result = await ask(embedding_services, "harbour crane crates", expand=True)
    lane = (await row_of(embedding_services, result)).retrieval_details["lanes"]["hop"]
    assert (lane["ran"], lane["reason"]) == (False, "no passage stands out")


def turn(text: str) -> str:
    """Say it so often that the turn is a passage of its own; no two sentences are alike."""
    return " ".join(f"{text} {word}." for word in ("so", "then", "now", "again", "today", "perhaps", "alas") * 2)


TURNS = [
    turn("The boathouse needs a roof of slate before the winter comes, says the surveyor, and"),
    turn("Agreed, Anna orders everything tomorrow and pays it from the reserve of the club, well"),
    turn("Rain drips through the boathouse roof onto both racing shells, reports the warden, and"),
    *(turn(f"Item {n}: the treasurer reads figure {n * 17}, nobody asks about a roof this time,") for n in range(12)),
]


def recording() -> str:
    stamps = [f"00:{at:02}:00.000 --> 00:{at:02}:59.000" for at in range(len(TURNS))]
    cues = [f"{stamp}\n<v Speaker>{said}" for stamp, said in zip(stamps, TURNS, strict=True)]
    return "\n\n".join(["WEBVTT", *cues])


@pytest.mark.parametrize(("path", "is_heard"), [("meeting.vtt", True), ("meeting.txt", False)])
async def test_the_turn_between_two_turns_about_the_subject_is_found(settings, database, embedder, path, is_heard):
    """Of a recording; the same paragraphs as prose stand each for itself."""
    fine = msgspec.structs.replace(settings, source_key_granularity="passage")
    services = compose(fine, database, embedders=WordEmbedders(embedder))
    text = recording() if is_heard else "\n\n".join(TURNS)
    await put(services, doc(path, text, media_type="text/vtt" if is_heard else "text/plain"))
    await embed(services)
    result = await ask(services, "boathouse roof", top_k=4, lanes=[Lane.LEXICAL, Lane.VECTOR])
    await services.close()
    shown = [block.content_preview for block in result.evidence_blocks]
    assert sum("boathouse" in text for text in shown[:2]) == 2
    assert any("Anna orders" in text for text in shown) is is_heard
