"""Passage search over the wire, and why a source is or is not among what it serves."""

from __future__ import annotations

import pytest

from assembly_support import serving
from strata.platform.ids import DEFAULT_TENANT

pytestmark = pytest.mark.database

TEXTS = {
    "a.md": "The lamp of the harbour.\n\nA bell rings.",
    "b.md": "The harbour has a lamp, a second lamp and a third lamp.",
    "c.md": "Nothing of that sort.",
    "d.md": "Harbour dues are paid in winter.",
}


@pytest.fixture
async def api(settings, services):
    async with serving(settings, services) as opened:
        yield opened


@pytest.fixture
async def meaning(settings, embedding_services):
    """The application with a small embedder."""
    async with serving(settings, embedding_services) as opened:
        path = await texts(opened)
        await embedding_services.embeddings.run(DEFAULT_TENANT)
        yield opened, path


async def texts(api, name="kb", passages=None):
    path = await api.context(name)
    body = {"passages": passages or TEXTS, "tags": {"a.md": ["new"], "d.md": ["new", "dues"]}}
    if passages is None:
        body["dates"] = {"a.md": 10, "b.md": 20}
        await api.send("POST", f"{path}/sources", body)
    else:
        await api.send("POST", f"{path}/sources", {"passages": passages})
    return path


async def search(api, path, query, **body):
    return await api.send("POST", f"{path}/sources/search", {"query": query, **body})


async def explain(api, path, query, source, **body):
    return await api.send("POST", f"{path}/sources/search/explain", {"query": query, "source": source, **body})


def places(found):
    return [(hit["source"], hit["paragraph"]) for hit in found["hits"]]


async def test_paragraphs_are_found_by_their_words_best_first(api):
    path = await texts(api)
    found = await search(api, path, "lamp harbour")
    assert places(found) == [("a.md", 0), ("b.md", 0), ("d.md", 0)]
    scores = [hit["score"] for hit in found["hits"]]
    assert scores == sorted(scores, reverse=True)
    for rank, hit in enumerate(found["hits"], 1):
        assert hit["lanes"] == {"bm25": {"rank": rank, "score": hit["score"]}}
        assert hit["text"] == TEXTS[hit["source"]].split("\n\n")[hit["paragraph"]]
        assert list(hit) == ["source", "paragraph", "score", "text", "lanes"]
    plan = found["plan"]["contexts"]
    assert plan == [
        {
            "context": "kb",
            "lanes": {
                "bm25": {"ran": True},
                "vector": {"ran": False, "reason": "no embedding provider is configured"},
            },
        }
    ]
    assert places(await search(api, path, "lamp harbour", limit=1)) == [("a.md", 0)]
    for nothing in ({"query": "lamp", "limit": 0}, {"query": ""}, {"query": "?! ..."}):
        empty = await api.send("POST", f"{path}/sources/search", nothing)
        assert empty["hits"] == []
        assert empty["plan"]["contexts"][0]["lanes"]["bm25"]["ran"] is False


@pytest.mark.parametrize(
    ("narrowed", "found", "eligible"),
    [
        ({"tags": ["new"]}, ["a.md", "d.md"], 2),
        ({"tags": ["dues", "none"]}, ["d.md"], 1),
        ({"tags": ["none"]}, [], 0),
        ({"until": 20}, ["a.md"], 1),
        ({"since": 20, "until": 21}, ["b.md"], 1),
        ({"since": 1_000}, ["d.md"], 2),
        ({"since": 1_000, "tags": ["new"]}, ["d.md"], 1),
    ],
)
async def test_filters_hold_and_the_plan_tells_what_they_left(api, narrowed, found, eligible):
    path = await texts(api)
    answer = await search(api, path, "harbour", **narrowed)
    assert sorted(source for source, _ in places(answer)) == found
    assert answer["plan"]["contexts"][0]["filter"] == {"eligible_sources": eligible, "total_sources": 4}


async def test_several_contexts_are_interleaved_the_best_of_each_first(api):
    first = {f"one {at}.md": f"lamp {'lamp ' * (9 - at)} harbour {'sea ' * at}" for at in range(4)}
    await texts(api, "one", first)
    await texts(api, "two", {"two 0.md": "A lamp.", "two 1.md": "A long text in which one lamp stands alone."})
    await texts(api, "three", {"none.md": "Nothing."})
    await api.send("PUT", "/groups/all", {"contexts": ["three", "two", "one"]})
    alone = {name: await search(api, f"/contexts/{name}", "lamp") for name in ("one", "two", "three")}
    body = {"query": "lamp", "contexts": ["one", "two", "three"], "limit": 20}
    found = await api.send("POST", "/sources/search", body)
    assert [hit["context"] for hit in found["hits"]] == ["one", "two", "one", "two", "one", "one"]
    for name, own in alone.items():
        hits = [hit for hit in found["hits"] if hit["context"] == name]
        assert [{**hit, "context": name} for hit in own["hits"]] == hits
    assert [entry["context"] for entry in found["plan"]["contexts"]] == ["one", "two", "three"]
    few = await api.send("POST", "/sources/search", {**body, "limit": 3})
    assert few["hits"] == found["hits"][:3]
    grouped = await api.send("POST", "/sources/search", {"query": "lamp", "groups": ["all"], "limit": 20})
    assert sorted(map(str, grouped["hits"])) == sorted(map(str, found["hits"]))
    assert (await api.refused("/sources/search", {"query": "lamp"}))[:2] == (400, "invalid_argument")
    assert (await api.refused("/sources/search", {"query": "lamp", "contexts": ["no"]}))[:2] == (404, "no_context")
    over = await api.refused("/sources/search", {"query": "x" * 4_097, "contexts": ["one"]})
    assert over[:2] == (400, "invalid_argument")


async def test_words_and_meaning_are_fused_and_each_hit_says_by_what_it_was_found(meaning):
    api, path = meaning
    found = await search(api, path, "harbour lamp", semantic_floor=0.01)
    assert {name for hit in found["hits"] for name in hit["lanes"]} == {"bm25", "vector"}
    lanes = found["plan"]["contexts"][0]["lanes"]
    assert lanes == {"bm25": {"ran": True}, "vector": {"ran": True, "floor": 0.01}}
    ranks = [hit["lanes"]["vector"]["rank"] for hit in found["hits"] if "vector" in hit["lanes"]]
    assert len(set(ranks)) == len(ranks)
    by_default = await search(api, path, "harbour lamp")
    assert by_default["plan"]["contexts"][0]["lanes"]["vector"]["floor"] == 0.35
    high = await search(api, path, "harbour lamp", semantic_floor=1.0)
    assert not [hit for hit in high["hits"] if "vector" in hit["lanes"]]
    assert [hit["source"] for hit in high["hits"]]


async def test_the_verdict_of_what_is_not_there(api):
    path = await texts(api)
    told = await explain(api, path, "lamp", "none.md")
    assert (told["verdict"], told["source"]) == ("not_stored", "none.md")
    assert set(told) == {"verdict", "summary", "source"}
    told = await explain(api, path, "lamp", "a.md", paragraph=2)
    assert (told["verdict"], told["paragraph"], told["paragraphs"]) == ("paragraph_out_of_range", 2, 2)
    assert told["paragraph_named"] is True
    assert (await explain(api, path, "lamp", "a.md", paragraph=2**50))["verdict"] == "paragraph_out_of_range"


async def test_the_verdict_of_what_a_filter_leaves_out(api):
    path = await texts(api)
    for narrowed in ({"tags": ["dues"]}, {"since": 11}, {"until": 10}):
        told = await explain(api, path, "lamp", "a.md", **narrowed)
        assert (told["verdict"], told["paragraphs"]) == ("filtered_out", 2)
    assert (await explain(api, path, "lamp", "a.md", tags=["new"], until=11))["verdict"] == "served"


@pytest.mark.parametrize("query", ["", "?! ...", "\u202c"])
async def test_the_verdict_of_a_question_without_words(api, query):
    path = await texts(api)
    told = await explain(api, path, query, "a.md")
    assert told["verdict"] == "no_query_terms"
    assert told["summary"]


async def test_the_verdict_of_a_limit_of_nothing_is_the_limit(api):
    path = await texts(api)
    told = await explain(api, path, "lamp", "a.md", limit=0)
    assert told["verdict"] == "below_cutoff"
    assert (told["ranking"]["served"], told["ranking"]["limit"], told["ranking"]["rank"]) == (False, 0, 2)
    assert told["ranking"]["limit_to_reach"] == 2


async def test_the_verdict_of_what_shares_no_word(api):
    path = await texts(api)
    told = await explain(api, path, "lamp harbour", "c.md")
    assert told["verdict"] == "no_term_overlap"
    assert told["query_terms"]
    assert not set(told["query_terms"]) & set(told["paragraph_terms"])
    assert {term["term"]: (term["tf"], term["df"]) for term in told["bm25"]["terms"]} == {
        "lamp": (0, 2),
        "harbour": (0, 3),
    }
    assert told["bm25"]["score"] == 0
    assert "rank" not in told["bm25"]
    assert "rank" not in told["ranking"]
    assert (told["ranking"]["served"], told["ranking"]["ranked"]) == (False, 3)


async def test_the_verdict_of_what_the_limit_cuts_names_the_limit_that_reaches_it(api):
    path = await texts(api)
    told = await explain(api, path, "lamp harbour", "d.md", limit=2)
    assert told["verdict"] == "below_cutoff"
    ranking = told["ranking"]
    assert (ranking["rank"], ranking["limit"], ranking["limit_to_reach"]) == (3, 2, 3)
    assert ranking["cutoff_score"] > ranking["score"]
    reached = await explain(api, path, "lamp harbour", "d.md", limit=ranking["limit_to_reach"])
    assert reached["verdict"] == "served"
    assert ("d.md", 0) in places(await search(api, path, "lamp harbour", limit=3))
    assert ("d.md", 0) not in places(await search(api, path, "lamp harbour", limit=2))


async def test_the_verdict_of_what_is_served_adds_up_to_its_score(api):
    path = await texts(api)
    found = await search(api, path, "lamp harbour")
    for rank, hit in enumerate(found["hits"], 1):
        told = await explain(api, path, "lamp harbour", hit["source"])
        assert (told["verdict"], told["paragraph"], told["paragraph_named"]) == ("served", hit["paragraph"], False)
        assert (told["ranking"]["rank"], told["ranking"]["served"], told["ranking"]["fused"]) == (rank, True, False)
        assert told["ranking"]["score"] == pytest.approx(hit["score"], rel=1e-6)
        assert told["bm25"]["rank"] == rank
        assert told["bm25"]["score"] == pytest.approx(hit["score"], rel=1e-6)
        shares = told["bm25"]["terms"]
        assert sum(share["contribution"] for share in shares) == pytest.approx(told["bm25"]["score"], rel=1e-5)
        assert all((share["contribution"] > 0) == (share["tf"] > 0) for share in shares)
        assert told["vector"] == {"ran": False, "reason": "no embedding provider is configured"}


async def test_the_best_paragraph_stands_for_its_source_unless_one_is_named(api):
    path = await texts(api)
    assert (await explain(api, path, "bell", "a.md"))["paragraph"] == 1
    named = await explain(api, path, "bell", "a.md", paragraph=0)
    assert (named["paragraph"], named["paragraph_named"], named["verdict"]) == (0, True, "no_term_overlap")


async def test_meaning_is_explained_where_it_was_asked(meaning):
    api, path = meaning
    told = await explain(api, path, "harbour lamp", "b.md", semantic_floor=0.01)
    assert told["verdict"] == "served"
    assert told["ranking"]["fused"] is True
    assert told["vector"]["ran"] is True
    assert told["vector"]["floor"] == 0.01
    assert told["vector"]["cosine"] > 0.01
    hit = next(
        hit for hit in (await search(api, path, "harbour lamp", semantic_floor=0.01))["hits"] if hit["source"] == "b.md"
    )
    assert told["vector"]["rank"] == hit["lanes"]["vector"]["rank"]
    assert told["vector"]["cosine"] == pytest.approx(hit["lanes"]["vector"]["score"], rel=1e-6)


async def test_a_text_of_nothing_is_explained_too(api):
    path = await texts(api, passages={"empty.md": "", "blank.md": " \n\n ", "lamp.md": "lamp"})
    for source in ("empty.md", "blank.md"):
        told = await explain(api, path, "lamp", source)
        assert told["verdict"] in {"no_term_overlap", "not_stored"}, told


async def test_half_a_character_and_nul_are_refused_and_odd_ones_are_searched(api):
    path = await texts(api, passages={"odd 🐦.md": "e\u0301t\u00e9 مرحبا 灯台 🐦"})
    for value in ("\\ud800", "a\\u0000"):
        refusal = await api.refused(f"{path}/sources/search", f'{{"query": "{value}"}}'.encode())
        assert refusal[:2] == (400, "invalid_argument")
    for query in ("été", "مرحبا", "灯台", "ＥＴＥ"):
        assert places(await search(api, path, query)) == [("odd 🐦.md", 0)], query
        assert (await explain(api, path, query, "odd 🐦.md"))["verdict"] == "served"
