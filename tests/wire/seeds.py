"""The state that each recorded request was sent to, made through the same wire."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import httpx


@dataclass(frozen=True)
class Place:
    """The context of a request, and its query string."""

    context: str = ""
    query: str = ""


class Wire:
    """Calls that make state: each must succeed."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self.http = http

    async def send(self, method: str, path: str, body: Any = None) -> Any:
        """Send JSON, or text as it is; return the result."""
        content = None if body is None else body if isinstance(body, str) else json.dumps(body, ensure_ascii=False)
        kind = "application/x-ndjson" if isinstance(body, str) else "application/json"
        headers = {} if content is None else {"content-type": kind}
        response = await self.http.request(method, path, content=content, headers=headers)
        assert response.status_code == 200, response.text
        return response.json()["result"]

    async def context(self, name: str, facts: Any = (), **body: Any) -> str:
        """Make a context with facts; return its path."""
        path = f"/contexts/{quote(name, safe='')}"
        await self.send("PUT", path, body)
        if facts:
            await self.send("POST", f"{path}/associations", list(facts))
        return path


def fact(subject: str, label: str, object_: str, weight: float = 1.0, **more: Any) -> dict[str, Any]:
    """Return one association."""
    return {"subject": subject, "label": label, "object": object_, "weight": weight, **more}


SEEDS: dict[str, Callable[[Wire], Awaitable[Place]]] = {}


def seed(*operations: str) -> Callable[[Callable[[Wire], Awaitable[Place]]], Callable[[Wire], Awaitable[Place]]]:
    """Register the state of recordings."""

    def add(make: Callable[[Wire], Awaitable[Place]]) -> Callable[[Wire], Awaitable[Place]]:
        for operation in operations:
            SEEDS[operation] = make
        return make

    return add


@seed("health", "version", "import", "import_with_schema", "import_refusal_durable_prefix")
async def nothing(_wire: Wire) -> Place:
    return Place()


@seed("error_no_context")
async def no_such_context(_wire: Wire) -> Place:
    return Place("does-not-exist")


@seed("associations_store", "store_passages", "embeddings_status", "error_malformed_request", "error_over_limit")
async def empty_context(wire: Wire) -> Place:
    await wire.context("corpus")
    return Place("corpus")


@seed("activate", "explore", "paths", "recall")
async def one_located_fact(wire: Wire) -> Place:
    path = await wire.context("corpus-a")
    page = [{"paragraph": 0, "locator": {"kind": "page", "value": "1"}}]
    await wire.send("POST", f"{path}/sources", {"passages": {"doc.md": "本文。"}, "locators": {"doc.md": page}})
    facts = [fact("alpha", "connects_to", "beta", 2.0, source="doc.md", paragraph=0)]
    await wire.send("POST", f"{path}/associations", facts)
    return Place("corpus-a")


@seed("labels", "unreachable_from")
async def one_fact(wire: Wire) -> Place:
    await wire.context("corpus-b", [fact("alpha", "connects_to", "beta", source="doc.md")])
    return Place("corpus-b")


@seed("contexts_list")
async def one_context_in_use(wire: Wire) -> Place:
    path = await wire.context("corpus-a", description="wire-contract corpus")
    await wire.send("POST", f"{path}/sources", {"passages": {"doc.md": "本文。"}})
    await wire.send(
        "POST", f"{path}/associations", [fact("alpha", "connects_to", "beta", source="doc.md", paragraph=0)]
    )
    await wire.send("POST", f"{path}/recall", {"cue": "alpha"})
    return Place()


@seed("add_associations_warn")
async def a_schema_that_warns(wire: Wire) -> Place:
    path = await wire.context("schema-corpus")
    document = {
        "schema": 1,
        "mode": "warn",
        "closed_labels": False,
        "types": {"Brewery": {"is_a": []}, "Person": {"is_a": []}},
        "relations": {"杜氏": {"domain": ["Brewery"], "range": []}},
    }
    await wire.send("PUT", f"{path}/schema", document)
    return Place("schema-corpus")


@seed("aliases_register")
async def a_name_to_alias(wire: Wire) -> Place:
    await wire.context("alias-corpus", [fact("PostgreSQL 16", "is_a", "database")])
    return Place("alias-corpus")


@seed("aliases_list", "aliases_remove")
async def an_alias(wire: Wire) -> Place:
    await a_name_to_alias(wire)
    await wire.send("POST", "/contexts/alias-corpus/aliases", {"concepts": {"Postgres": "PostgreSQL 16"}})
    return Place("alias-corpus")


@seed("changes")
async def one_change_after_a_position(wire: Wire) -> Place:
    path = await wire.context("feed-corpus", [fact("a", "l", "b")])
    await wire.send("POST", f"{path}/associations", [fact("a", "l", "c")])
    position = (await wire.send("GET", f"{path}/changes"))["next"]
    await wire.send("POST", f"{path}/associations", [fact("a", "l", "d")])
    return Place("feed-corpus", f"?since={quote(position, safe='')}")


@seed("changes_stale_cursor")
async def a_position_of_a_context_that_was_made_again(wire: Wire) -> Place:
    path = await wire.context("feed-corpus", [fact("a", "l", "b")])
    position = (await wire.send("GET", f"{path}/changes"))["next"]
    await wire.send("DELETE", path)
    await wire.context("feed-corpus", [fact("a", "l", "b")])
    return Place("feed-corpus", f"?since={quote(position, safe='')}")


@seed("communities_search")
async def a_summary_of_a_community(wire: Wire) -> Place:
    path = await wire.context("corpus-d", [fact("a1", "l", "a2", source="doc.md")])
    revision = (await wire.send("GET", path))["revision"]
    manifest = {
        "taguru_communities": 1,
        "algorithm": "louvain-cc/1",
        "source_context": "corpus-d",
        "revision": revision,
        "levels": 1,
        "communities": [{"id": "L0-0", "level": 0, "fingerprint": "00aa00aa00aa00aa", "concept_count": 2}],
    }
    passages = {
        "community:L0-0": "この共同体のテーマは酒造りの歴史です。",
        "communities:manifest": json.dumps(manifest),
    }
    members = [fact("community:L0-0", "contains", "a1", 6.0), fact("community:L0-0", "contains", "a2", 4.0)]
    derived = await wire.context("corpus-d::communities", members)
    await wire.send("POST", f"{derived}/sources", {"passages": passages})
    return Place("corpus-d")


@seed("consolidation_audit")
async def twins_a_contradiction_and_old_facts(wire: Wire) -> Place:
    path = await wire.context("audit-corpus")
    passages = {"passages": {"doc-a": "古い。", "doc-b": "新しい。"}, "dates": {"doc-a": 1000, "doc-b": 2000}}
    await wire.send("POST", f"{path}/sources", passages)
    facts = [
        fact("蔵", "杜氏", "高瀬", source="doc-a"),
        fact("蔵", "銘柄", "初霜", source="doc-a"),
        fact("蔵", "杜氏", "青山", source="doc-b"),
        fact("蔵", "行う", "大量生産", 1.0, source="doc-a"),
        fact("蔵", "行う", "大量生産", -2.0, source="doc-b"),
        fact("青嶺酒造", "銘柄", "青嶺", source="doc-a"),
        fact("青嶺酒蔵", "銘柄", "青嶺"),
    ]
    await wire.send("POST", f"{path}/associations", facts)
    return Place("audit-corpus")


@seed("drift_audit")
async def twins_and_weight_without_a_source(wire: Wire) -> Place:
    facts = [
        fact("青嶺酒造", "銘柄", "青嶺", source="doc.md"),
        fact("青嶺酒蔵", "銘柄", "青嶺", source="doc.md"),
        fact("蔵", "行う", "醸造", 3.0),
    ]
    await wire.context("audit-corpus", facts)
    return Place("audit-corpus")


@seed("vocabulary_audit")
async def twins(wire: Wire) -> Place:
    await wire.context("audit-corpus", [fact("青嶺酒造", "銘柄", "青嶺"), fact("青嶺酒蔵", "銘柄", "青嶺")])
    return Place("audit-corpus")


@seed("promote", "promote_dry_run")
async def a_source_to_move(wire: Wire) -> Place:
    await wire.context("corpus-p")
    path = await wire.context("corpus-w")
    passages = {"session:w:a": "移す本文。", "session:w:b": "残す本文。"}
    await wire.send("POST", f"{path}/sources", {"passages": passages})
    facts = [fact("甲", "l1", "乙", source="session:w:a", paragraph=0), fact("丙", "l2", "丁", source="session:w:b")]
    await wire.send("POST", f"{path}/associations", facts)
    await wire.send("POST", f"{path}/aliases", {"concepts": {"Kou": "甲", "Hei": "丙"}})
    return Place("corpus-w")


@seed("sources_search")
async def one_passage(wire: Wire) -> Place:
    path = await wire.context("corpus-c")
    await wire.send("POST", f"{path}/sources", {"passages": {"doc.md": "青嶺酒造は雲居県霧沢町の蔵元である。"}})
    return Place("corpus-c")


@seed("evidence_budget_constrained")
async def five_facts(wire: Wire) -> Place:
    await wire.context("budget-corpus", [fact(f"s{number}", "rel", f"o{number}") for number in range(5)])
    return Place("budget-corpus")


@seed("evidence_communities_degrade_and_rerank_reason")
async def a_fact_without_summaries(wire: Wire) -> Place:
    await wire.context("comm-corpus", [fact("alpha", "rel", "beta")])
    return Place("comm-corpus")


@seed("evidence_contradiction_group")
async def two_facts_of_one_label(wire: Wire) -> Place:
    path = await wire.context("contradiction-corpus")
    passages = {"s1.md": "猫は哺乳類である。", "s2.md": "猫は爬虫類だと主張する文献もある。"}
    page = [{"paragraph": 0, "locator": {"kind": "page", "value": "1"}}]
    await wire.send("POST", f"{path}/sources", {"passages": passages, "locators": {"s1.md": page}})
    facts = [
        fact("猫", "is_a", "哺乳類", source="s1.md", paragraph=0),
        fact("猫", "is_a", "爬虫類", source="s2.md", paragraph=0),
    ]
    await wire.send("POST", f"{path}/associations", facts)
    return Place("contradiction-corpus")


@seed("evidence_duplicate_passage")
async def one_text_twice(wire: Wire) -> Place:
    path = await wire.context("dup-corpus")
    text = "the quick brown fox jumps over the lazy dog"
    await wire.send("POST", f"{path}/sources", {"passages": {"a.md": text, "b.md": text}})
    return Place("dup-corpus")


@seed("evidence_mixed_lanes")
async def a_fact_and_its_passage(wire: Wire) -> Place:
    path = await wire.context("sake")
    text = "青嶺酒造は雲居県霧沢町の蔵元である。杜氏は高瀬である。"
    page = [{"paragraph": 0, "locator": {"kind": "page", "value": "1"}}]
    await wire.send("POST", f"{path}/sources", {"passages": {"docs/kura.md": text}, "locators": {"docs/kura.md": page}})
    facts = [fact("青嶺酒造", "杜氏", "高瀬", source="docs/kura.md", paragraph=0)]
    await wire.send("POST", f"{path}/associations", facts)
    return Place("sake")
