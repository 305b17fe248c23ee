"""An embedder for tests: words hashed into 64 dimensions, and ways to make it fail."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections import Counter

import numpy as np

from strata.errors import EMBEDDING_REFUSED, EMBEDDING_UNAVAILABLE, StrataError
from strata.providers.embeddings.base import EmbeddingSpace
from strata.providers.embeddings.embedders import EmbedderDescription
from strata.text.contextual import embedded_text

DIMENSION = 64


def bag_of_words(text, dimension=DIMENSION):
    """One unit vector: each word adds to a component that its hash chooses. Equal words, equal vectors."""
    vector = np.full(dimension, 1e-3, np.float32)
    for word in re.findall(r"\w+", text.casefold()):
        digest = hashlib.blake2b(word.encode(), digest_size=8).digest()
        vector[int.from_bytes(digest[:4], "little") % dimension] += 1 if digest[4] & 1 else -1
    return vector / np.linalg.norm(vector)


class WordEmbedder:
    """Deterministic and fast. ``poison`` words are refused; ``gate`` holds every call back until it is set."""

    def __init__(self, model="words", dimension=DIMENSION, poison=()):
        self.space = EmbeddingSpace(provider="test", model=model, revision="1", dimension=dimension)
        self.poison = tuple(poison)
        self.is_down = False
        self.drops = 0
        self.gate = None
        self.entered = asyncio.Event()
        self.calls = []

    async def embed_passages(self, texts):
        self.entered.set()
        if self.gate is not None:
            await self.gate.wait()
        if self.is_down:
            raise StrataError(EMBEDDING_UNAVAILABLE, "The test embedder is down.")
        if any(word in text for word in self.poison for text in texts):
            raise StrataError(EMBEDDING_REFUSED, "The test embedder will not have it.")
        self.calls.append(list(texts))
        await asyncio.sleep(0)
        return np.stack([bag_of_words(text, self.space.dimension) for text in texts])[: len(texts) - self.drops]

    async def embed_query(self, text):
        return bag_of_words(text, self.space.dimension)

    async def close(self):
        return None


class WordEmbedders:
    """What stands in for the embedders of the settings: one configured, others served too."""

    def __init__(self, configured, *others):
        self.current = configured
        self.others = list(others)
        self.can_open = True

    @property
    def mode(self):
        return "folder" if self.current else "none"

    async def configured(self):
        if not self.can_open:
            raise StrataError(EMBEDDING_UNAVAILABLE, "The test embedder cannot be opened.")
        return self.current

    async def for_space(self, space):
        known = [self.current, *self.others]
        return next((one for one in known if one and one.space.fingerprint == space.fingerprint), None)

    async def query_vector(self, space, text):
        embedder = await self.for_space(space)
        if embedder is None:
            raise StrataError(EMBEDDING_UNAVAILABLE, "No embedder makes such vectors.")
        return await embedder.embed_query(text)

    def describe(self):
        space = self.current.space if self.current else None
        return EmbedderDescription(
            mode=self.mode,
            model=space.model if space else None,
            space=space if self.can_open else None,
            is_open=self.can_open,
            error=None if self.can_open else "The test embedder cannot be opened.",
            breaker=None,
            cache_hits=0,
            cache_misses=0,
            cache_entries=0,
        )

    async def close(self):
        return None


async def check_vectors(services, tenant, *, dimension=DIMENSION, is_complete=True):
    """Counters are exact, no vector is without its passage, and each is of the text that stands there now."""
    async with services.database.work(tenant, snapshot=True) as connection:
        spaces = await connection.fetch("SELECT * FROM embedding_space")
        vectors = await connection.fetch(
            "SELECT context_id, space_id, passage_id, embedding::real[] AS numbers FROM passage_vector"
        )
        passages = await connection.fetch(
            "SELECT p.context_id, p.passage_id, s.title, x.breadcrumb, "
            "convert_from(substring(content FROM p.start_byte::int + 1 FOR (p.end_byte - p.start_byte)::int), 'UTF8') "
            "FROM passage p JOIN source s USING (tenant_id, context_id, source_id) "
            "JOIN source_content USING (tenant_id, context_id, source_id) "
            "JOIN section x ON x.source_id = p.source_id AND x.ordinal = p.section_ordinal"
        )
    texts = {(row[0], row[1]): embedded_text(row[2], row[3], row[4]) for row in passages}
    counted = Counter((row["context_id"], row["space_id"]) for row in vectors)
    assert {(row["context_id"], row["space_id"]): row["vectors"] for row in spaces if row["vectors"]} == dict(counted)
    for row in vectors:
        text = texts.get((row["context_id"], row["passage_id"]))
        assert text is not None, "a vector outlived its passage"
        cosine = float(np.dot(bag_of_words(text, dimension), np.array(row["numbers"], np.float32)))
        assert cosine > 0.999, "a vector is of another text"
    if is_complete:
        live = Counter(context for context, _ in texts)
        active = {row["context_id"]: row["vectors"] for row in spaces if row["state"] == "active"}
        assert {context: number for context, number in active.items() if number} == dict(live)
