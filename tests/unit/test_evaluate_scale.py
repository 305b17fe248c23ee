"""The corpus and the vectors of the scale benchmark are the same each time, and parts of a call are told apart."""

from __future__ import annotations

import json

import numpy as np

from strata.evaluate.remix import Corpus, SyntheticVectors, base_vectors
from strata.evaluate.watch import PartTimes, part_times
from strata.platform import telemetry
from strata.providers.embeddings.base import EmbeddingSpace


def judged(tmp_path):
    folder = tmp_path / "set"
    folder.mkdir()
    texts = [f"Sentence number {number} speaks of bees. Another one speaks of honey {number}." for number in range(9)]
    (folder / "corpus.jsonl").write_text(
        "\n".join(json.dumps({"_id": str(at), "text": text}) for at, text in enumerate(texts))
    )
    (folder / "queries.jsonl").write_text('{"_id": "q", "text": "bees?"}\n{"_id": "r", "text": " "}')
    (folder / "qrels.tsv").write_text("query-id\tcorpus-id\tscore\nq\t1\t1\nr\t1\t1\n")
    return folder


def written(corpus, path, count):
    corpus.write(path, count)
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_the_remixed_corpus_is_the_same_each_time_and_goes_on(tmp_path):
    folder = judged(tmp_path)
    first, second = Corpus([folder]), Corpus([folder])
    assert written(first, tmp_path / "a", 5) == written(second, tmp_path / "b", 5)
    more = written(first, tmp_path / "a", 2)
    assert [record["_id"] for record in more] == ["doc/00000005", "doc/00000006"]
    assert first.queries == ["bees?"]


def test_a_sample_does_not_move_the_corpus_on(tmp_path):
    folder = judged(tmp_path)
    first, second = Corpus([folder]), Corpus([folder])
    assert first.sample(3) == second.sample(3)
    assert written(first, tmp_path / "a", 3) == written(Corpus([folder]), tmp_path / "b", 3)


def test_synthetic_vectors_are_unit_near_their_bases_and_the_same_each_time():
    bases = np.eye(64, dtype=np.float32)[:8]
    first, second = SyntheticVectors(bases), SyntheticVectors(bases)
    vectors = first.take(50)
    assert np.array_equal(vectors, second.take(50))
    assert not np.array_equal(vectors, first.take(50))
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    assert ((vectors @ bases.T).max(axis=1) > 0.6).all()


class _Embedder:
    space = EmbeddingSpace(provider="test", model="m", revision="1", dimension=4)
    calls = 0

    async def embed_passages(self, texts):
        self.calls += 1
        return np.full((len(texts), 4), 0.5, np.float32)


async def test_base_vectors_are_embedded_once(tmp_path):
    embedder, corpus = _Embedder(), Corpus([judged(tmp_path)])
    first = await base_vectors(embedder, corpus, tmp_path / "vectors", count=40)
    again = await base_vectors(embedder, corpus, tmp_path / "vectors", count=40)
    assert first.shape == (40, 4)
    assert np.array_equal(first, again)
    assert embedder.calls == 2


def test_parts_are_told_apart_by_call():
    parts = PartTimes()
    parts.add("early", 5)
    for value in (1, 3):
        parts.begin()
        parts.add("lexical", value)
        parts.add("lexical", value)
    parts.begin()
    parts.add("vector", 7)
    assert parts.percentiles(95) == {"lexical": 6, "vector": 7}
    assert parts.percentiles(50) == {"lexical": 2, "vector": 0}
    assert parts.total("lexical") == 8


def test_lanes_and_stages_are_timed_only_while_watched():
    stage = telemetry.stage
    with part_times() as parts:
        parts.begin()
        with telemetry.stage("fusion"), telemetry.lane("lexical"):
            pass
    with telemetry.stage("fusion"):
        pass
    assert telemetry.stage is stage
    assert set(parts.percentiles(50)) == {"fusion", "lexical"}
