"""The rival of the benchmarks: bm25s in this process, with the analysis that its users would choose."""

from __future__ import annotations

import logging
import re
import unicodedata
from collections.abc import Sequence
from itertools import islice

import Stemmer

from strata.evaluate.beir import JudgedSet, Query, is_within
from strata.sources.readers import BeirRecord, iter_beir

K1, B = 1.2, 0.75
_WORDS = re.compile(r"(?u)\b\w\w+\b")
_SPACELESS = re.compile(r"[぀-ヿ㐀-鿿豈-﫿]+")


class Bm25s:
    """bm25s over the documents of a set: title and text, k1 1.2, b 0.75, idf as in Lucene.

    English is stemmed by Snowball without stop words; Chinese and Japanese give character bigrams.
    """

    def __init__(self, documents: Sequence[tuple[str, str]]) -> None:
        import bm25s
        from bm25s.stopwords import STOPWORDS_EN

        # It logs each step at debug level, whatever the level of the rest.
        logging.getLogger("bm25s").setLevel(logging.WARNING)
        self._stop = frozenset(STOPWORDS_EN)
        self._stem = Stemmer.Stemmer("english")
        self._ids = [identifier for identifier, _ in documents]
        self._index = bm25s.BM25(method="lucene", k1=K1, b=B)
        self._index.index([self.analyse(text) or ["∅"] for _, text in documents], show_progress=False)

    def analyse(self, text: str) -> list[str]:
        """Return the tokens of a text."""
        folded = unicodedata.normalize("NFKC", text).lower()
        tokens = [
            run if len(run) == 1 else run[at : at + 2]
            for run in _SPACELESS.findall(folded)
            for at in range(max(1, len(run) - 1))
        ]
        words = [word for word in _WORDS.findall(_SPACELESS.sub(" ", folded)) if word not in self._stop]
        return [*tokens, *self._stem.stemWords(words)]

    def ranking(self, query: Query, depth: int, within: str | None = None) -> list[str]:
        """Return the best documents for a question; those without any of its terms are left out.

        ``within`` names a field of the question: only documents that belong to its value are ranked.
        """
        import numpy as np

        tokens = [token for token in self.analyse(query.text) if token in self._index.vocab_dict]
        if not tokens:
            return []
        scores = self._index.get_scores(tokens)
        best = (at for at in np.argsort(-scores, kind="stable").tolist() if scores[at] > 0)
        found = (self._ids[at] for at in best)
        if within is not None:
            value = query.fields.get(within, "")
            found = (document for document in found if is_within(document, value))
        return list(islice(found, depth))


def whole_text(record: BeirRecord) -> str:
    """Return a document as it is compared: title and text."""
    return f"{record.title} {record.text}".strip()


def rival_for(judged: JudgedSet, language: str | None = None) -> Bm25s:
    """Return bm25s over the corpus of a set, or over its documents of one language."""
    return Bm25s(
        [
            (record.id, whole_text(record))
            for record in iter_beir(judged.corpus, [])
            if language is None or record.metadata.get("lang") == language
        ]
    )
