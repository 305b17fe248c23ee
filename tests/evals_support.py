"""A small server of the contexts API's wire, in memory: what the tests of evals ask.

It answers in the shapes of the wire over the documents of an import file, by a plain BM25 of its own, and assembles
packages by the published rules for passages alone. It stands in for a server, never for Strata's own retrieval.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from pathlib import Path
from urllib.parse import unquote

import httpx2
import msgspec

from strata.evaluate.allowance import item
from strata.evaluate.backend import Hit
from strata.evaluate.wire import WireBackend
from strata.text.estimate import token_quarters

EVALS = Path(__file__).parent / "data" / "evals"


class MemoryServer:
    """Contexts filled from import files; ``handle`` answers one request."""

    def __init__(self, *files, name="multihop"):
        self.name = name
        self.sources = {}
        self.sections = {}
        self.facts = []
        self.revision = {"graph": 1, "passages": 1, "config": 0}
        self.failing = {}
        self.reranker = {"configured": False, "ran": False}
        self.calls = []
        for file in files or (EVALS / "corpus.jsonl",):
            self._import(file)
        self._index()

    def backend(self):
        return WireBackend(self.client())

    def client(self):
        return httpx2.AsyncClient(transport=httpx2.MockTransport(self._respond), base_url="http://memory/")

    def handle(self, method, path, body):
        """Return status and body of one answer."""
        found = re.fullmatch(r"/contexts/([^/]+)(/.*)?", path)
        if found is None:
            return 404, error("unknown_path")
        if unquote(found[1]) != self.name:
            return 404, error("no_context")
        operation = found[2] or ""
        self.calls.append((operation, body))
        query = (body or {}).get("query") or (body or {}).get("text_fallback_query")
        if (operation, query) in self.failing:
            code, status = self.failing[operation, query]
            return status, error(code)
        answer = {
            "": self._row,
            "/embeddings": self._embeddings,
            "/sources/lookup": self._lookup,
            "/sources/search": self._search,
            "/evidence": self._evidence,
            "/resolve": lambda body: self._resolve(body, {name for fact in self.facts for name in fact[::2]}),
            "/resolve_label": lambda body: self._resolve(body, {fact[1] for fact in self.facts}),
            "/query": self._query,
            "/citations": self._cite,
        }[operation]
        result = answer(body)
        return (404, error(result)) if isinstance(result, str) else (200, {"result": result, "status": "ok", "time": 0})

    def _respond(self, request):
        body = json.loads(request.content) if request.content else None
        status, answer = self.handle(request.method, request.url.raw_path.decode().partition("?")[0], body)
        return httpx2.Response(status, content=msgspec.json.encode(answer))

    def _import(self, file):
        source = ""
        for line in file.read_text(encoding="utf-8").splitlines():
            fields = json.loads(line)
            if "taguru_batch" in fields:
                source = fields["source"]
            elif "passage" in fields:
                self.sources[source] = fields["passage"].split("\n\n")
            elif "section" in fields:
                self.sections[source] = fields["section"]
            else:
                self.facts.append((fields["subject"], fields["label"], fields["object"], source))

    def _index(self):
        self.places = [(source, number) for source, parts in self.sources.items() for number in range(len(parts))]
        self.words = [Counter(words(self.sources[source][number])) for source, number in self.places]
        self.seen = Counter(word for bag in self.words for word in bag)
        self.mean = sum(bag.total() for bag in self.words) / max(1, len(self.words))

    def _row(self, _body):
        return {"name": self.name, "description": "", "revision": self.revision}

    def _embeddings(self, _body):
        return {"provider_model": None}

    def _lookup(self, body):
        return {"passages": {}, "missing": [source for source in body["sources"] if source not in self.sources]}

    def _ranked(self, query, limit):
        asked = set(words(query))
        scored = []
        for place, bag in zip(self.places, self.words, strict=True):
            score = sum(
                self._weight(word) * bag[word] * 2.2 / (bag[word] + self._length(bag)) for word in asked & set(bag)
            )
            if score:
                scored.append((-score, place))
        return [
            {
                "source": source,
                "paragraph": number,
                "score": round(-score, 6),
                "text": self.sources[source][number],
                "lanes": {"bm25": {"rank": rank, "score": round(-score, 6)}},
            }
            for rank, (score, (source, number)) in enumerate(sorted(scored)[:limit], 1)
        ]

    def _weight(self, word):
        return math.log1p((len(self.words) - self.seen[word] + 0.5) / (self.seen[word] + 0.5))

    def _length(self, bag):
        return 1.2 * (0.25 + 0.75 * bag.total() / self.mean)

    def _search(self, body):
        lanes = {"bm25": {"ran": True}, "vector": {"ran": False, "reason": "no embedding provider is configured"}}
        hits = self._ranked(body["query"], body["limit"])
        return {"hits": hits, "plan": {"contexts": [{"context": self.name, "lanes": lanes}]}}

    def _evidence(self, body):
        limits = body["budget"]
        hits = self._ranked(body["text_fallback_query"], body["search_limit"])
        items, size, quarters = [], 4, 4
        units = list(enumerate(hits, 1))
        for rank, hit in diverse(units, max(1, limits["max_items"] // 4)):
            entry = item(Hit(hit["source"], hit["paragraph"], hit), self.name, rank)
            text = msgspec.json.encode(entry).decode()
            comma = 1 if items else 0
            fits = size + comma + len(text.encode()) <= limits["max_bytes"]
            fits &= -(-(quarters + comma + token_quarters(text)) // 4) <= limits["max_tokens"]
            if fits and len(items) < limits["max_items"]:
                items.append({**entry, "bytes": len(text.encode()), "estimated_tokens": -(-token_quarters(text) // 4)})
                size, quarters = size + comma + len(text.encode()), quarters + comma + token_quarters(text)
        omitted = len(hits) - len(items)
        return {
            "items": items,
            "citations": [],
            "budget": {
                "items_used": len(items),
                "bytes_used": size,
                "tokens_used": -(-quarters // 4),
                "limits": limits,
            },
            "omitted": [],
            "omitted_total": omitted,
            "omitted_by_reason": {"budget_exceeded": omitted, "duplicate_passage": 1},
            "plan": {"lanes": {}, "selection": {}, "reranker": self.reranker},
        }

    def _resolve(self, body, names):
        cue = body["cue"].lower()
        found = []
        for name in sorted(names):
            if name.lower() == cue:
                found.append({"name": name, "score": 1.0, "tier": "lexical", "kind": "exact"})
            elif name.lower() in cue or cue in name.lower():
                score = min(len(name), len(cue)) / max(len(name), len(cue))
                found.append({"name": name, "score": score, "tier": "lexical", "kind": "containment"})
        return sorted(found, key=lambda each: (-each["score"], each["name"]))[: body["limit"]]

    def _query(self, body):
        wanted = (body["subject"], body["label"], body["object"])
        matches = [
            {
                "subject": fact[0],
                "label": fact[1],
                "object": fact[2],
                "weight": 1.0,
                "count": 1,
                "attributions": [{"source": fact[3], "weight": 1.0, "count": 1, "paragraph": None}],
            }
            for fact in self.facts
            if fact[:3] == wanted
        ]
        return {"total": len(matches), "matches": matches, "plan": {}}

    def _cite(self, body):
        source, number = body["source"], body["paragraph"]
        if source not in self.sources:
            return "no_source"
        if number >= len(self.sources[source]):
            return "no_paragraph"
        section = self.sections.get(source)
        return {"text": self.sources[source][number], "source": source, "section": section, "locator": None}


def diverse(units, width):
    """Order by tiers: in each, first those whose source was not seen before."""
    seen = set()
    for start in range(0, len(units), width):
        repeats = []
        for unit in units[start : start + width]:
            source = unit[1]["source"]
            if source in seen:
                repeats.append(unit)
            else:
                seen.add(source)
                yield unit
        yield from repeats


def words(text):
    return re.findall(r"\w+", text.lower())


def error(code):
    return {"status": "error", "code": code, "error": code, "time": 0}
