"""Builds the derived context of a graph's communities: a summary of each, who belongs to it, and a manifest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from uuid import UUID

import msgspec
from msgspec import UNSET, Struct

from strata.assembly.communities import (
    CONTAINS,
    FORMAT,
    MANIFEST,
    SOURCE_PREFIX,
    SUFFIX,
    Manifest,
    ManifestLine,
    ManifestRevision,
)
from strata.errors import CONTEXT_NOT_FOUND, StrataError
from strata.exchange.records import AssociationLine, Create, Form, PassageLine, SourceBatch, Stream
from strata.exchange.service import ExchangeService
from strata.knowledge.audit_schemas import CommunitiesOut, CommunityOut
from strata.knowledge.graph_service import GraphService
from strata.knowledge.service import ContextService
from strata.platform.database import Database
from strata.sources.text_service import TextService

PART_OF = "part of"
SUMMARY_MEMBERS = 24
SUMMARY_FACTS = 24
_PAGE = 1_000


class Built(Struct, frozen=True, kw_only=True):
    """What was built."""

    derived: str
    communities: int
    levels: int
    removed: int


class CommunityBuilder:
    """Derives the communities of a context and stores them as sources of another context."""

    def __init__(
        self,
        database: Database,
        contexts: ContextService,
        graph: GraphService,
        texts: TextService,
        exchange: ExchangeService,
    ) -> None:
        self._database = database
        self._contexts = contexts
        self._graph = graph
        self._texts = texts
        self._exchange = exchange

    async def build(self, tenant: UUID, ref: str) -> Built:
        """Replace the summaries in the derived context ``NAME::communities`` by what the graph gives now."""
        found = await self._graph.communities(tenant, ref)
        derived = found.context + SUFFIX
        levels = 1 + max((one.level for one in found.communities), default=-1)
        stream = list(_sources(found, derived, levels))
        wanted = {batch.source for batch in stream}
        stale = [name for name in await self._names(tenant, derived) if name not in wanted]
        gone = [_batch(derived, name) for name in stale if name.startswith(SOURCE_PREFIX)]
        await self._exchange.import_stream(tenant, Stream(sources=(*stream, *gone)))
        return Built(derived=derived, communities=len(found.communities), levels=levels, removed=len(gone))

    async def _names(self, tenant: UUID, derived: str) -> list[str]:
        """Return the sources of the derived context, none where it does not exist yet."""
        names: list[str] = []
        try:
            async with self._database.work(tenant, snapshot=True) as connection:
                row = await self._contexts.resolve(connection, tenant, derived)
                while page := (
                    await self._texts.page(
                        connection, tenant, row.context_id, after=names[-1] if names else "", limit=_PAGE
                    )
                ).entries:
                    names += [entry.name for entry in page]
        except StrataError as error:
            if error.kind is not CONTEXT_NOT_FOUND:
                raise
        return names


def _sources(found: CommunitiesOut, derived: str, levels: int) -> Iterator[SourceBatch]:
    by_id = {one.id: one for one in found.communities}
    manifest = Manifest(
        taguru_communities=FORMAT,
        algorithm=found.algorithm,
        source_context=found.context,
        revision=ManifestRevision(
            graph=found.graph_revision, passages=found.passages_revision, config=found.config_revision
        ),
        levels=levels,
        communities=[
            ManifestLine(
                id=one.id,
                level=one.level,
                parent=None if one.parent is UNSET else one.parent,
                fingerprint=one.fingerprint,
                concept_count=one.concept_count,
            )
            for one in found.communities
        ],
    )
    for one in found.communities:
        source = SOURCE_PREFIX + one.id
        facts = [
            AssociationLine(subject=source, label=CONTAINS, object=member.name, weight=member.strength)
            for member in one.members or ()
        ]
        if one.parent is not UNSET:
            facts.append(AssociationLine(subject=source, label=PART_OF, object=SOURCE_PREFIX + one.parent, weight=1.0))
        yield _batch(derived, source, summary(one, by_id), facts)
    # Last: whoever reads it finds every summary that it names.
    yield _batch(derived, MANIFEST, msgspec.json.encode(manifest).decode())


def summary(community: CommunityOut, by_id: Mapping[str, CommunityOut]) -> str:
    """Return the text that stands for a community: its strongest members, and its heaviest facts."""
    leaves = list(_leaves(community, by_id))
    members = sorted(
        ((member.strength, member.name) for leaf in leaves for member in leaf.members or ()),
        key=lambda item: (-item[0], item[1]),
    )
    facts = [fact for leaf in leaves for fact in leaf.top_associations or ()]
    facts.sort(key=lambda fact: (-abs(fact.weight * fact.count), fact.subject, fact.label, fact.object))
    names = ", ".join(name for _, name in members[:SUMMARY_MEMBERS])
    lines = [
        f"{fact.subject} — {fact.label} — {fact.object}{'' if fact.weight >= 0 else ' (denied)'}."
        for fact in facts[:SUMMARY_FACTS]
    ]
    return "\n".join([f"{names}.", *lines]).replace("\0", "")


def _leaves(community: CommunityOut, by_id: Mapping[str, CommunityOut]) -> Iterator[CommunityOut]:
    children: Sequence[str] = community.children or ()
    if not children:
        yield community
    for child in children:
        if child in by_id:
            yield from _leaves(by_id[child], by_id)


def _batch(derived: str, source: str, text: str | None = None, facts: Sequence[AssociationLine] = ()) -> SourceBatch:
    return SourceBatch(
        form=Form.NAME,
        context=derived,
        source=source,
        create=Create(description="Summaries of communities, derived from a context's graph."),
        passage=None if text is None else PassageLine(text=text),
        associations=tuple(facts),
    )
