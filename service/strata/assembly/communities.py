"""Communities of a context: summaries of its graph's clusters, held in a context of their own, and searched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

import msgspec
from msgspec import UNSET, Struct

from strata.assembly.schemas import CommunityMemberOut, CommunityOut
from strata.assembly.scores import single
from strata.errors import COMMUNITIES_NOT_FOUND, CONTEXT_NOT_FOUND, StrataError
from strata.graph import match
from strata.knowledge.graph_service import GraphService
from strata.knowledge.model import ContextRow
from strata.knowledge.service import ContextService
from strata.lookup.meaning import Question
from strata.lookup.search import Found, PassageQuery, SearchService
from strata.platform.database import Connection
from strata.sources.text_service import TextService

FORMAT = 1
SUFFIX = "::communities"
MANIFEST = "communities:manifest"
SOURCE_PREFIX = "community:"
CONTAINS = "contains"
MEMBERS_SHOWN = 12
BUILD_COMMAND = "strata communities build"


class ManifestLine(Struct, frozen=True, kw_only=True):
    """What the manifest says of one community."""

    id: str
    level: int = 0
    parent: str | None = None
    fingerprint: str = ""
    concept_count: int = 0


class ManifestRevision(Struct, frozen=True, kw_only=True):
    """The state of the context that the communities were derived from."""

    graph: int
    passages: int = 0
    config: int = 0


class Manifest(Struct, frozen=True, kw_only=True):
    """The record of a derivation, stored as a source of the derived context."""

    taguru_communities: int
    algorithm: str
    source_context: str
    revision: ManifestRevision
    levels: int
    communities: list[ManifestLine]


@dataclass(frozen=True, slots=True)
class Artifact:
    """The derived context of a context, and its manifest."""

    row: ContextRow
    manifest: Manifest
    by_id: Mapping[str, ManifestLine] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FoundCommunities:
    """Summaries found, each with its source, and the search that found them."""

    artifact: Artifact
    search: Found
    hits: Sequence[tuple[str, CommunityOut]]


class CommunityService:
    """Finds and searches the communities of a context, in the caller's snapshot."""

    def __init__(
        self, contexts: ContextService, graph: GraphService, texts: TextService, search: SearchService
    ) -> None:
        self._contexts = contexts
        self._graph = graph
        self._texts = texts
        self._search = search

    async def artifact(
        self, connection: Connection, tenant: UUID, row: ContextRow, derived: str | None = None
    ) -> Artifact:
        """Return the derived context of ``row``, by default the one named ``NAME::communities``.

        Raises ``communities_not_found`` where there is none, or none with a manifest.
        """
        name = derived or row.name + SUFFIX
        try:
            found = await self._contexts.resolve(connection, tenant, name)
        except StrataError as error:
            if error.kind is not CONTEXT_NOT_FOUND:
                raise
            raise _missing(row, f"context {name!r} does not exist") from error
        texts = await self._texts.read(connection, tenant, found.context_id, [MANIFEST])
        try:
            manifest = msgspec.json.decode(texts[MANIFEST], type=Manifest)
        except KeyError as error:
            raise _missing(row, f"context {name!r} has no source {MANIFEST!r}") from error
        except msgspec.DecodeError as error:
            raise _missing(row, f"the manifest of context {name!r} cannot be read") from error
        return Artifact(found, manifest, {line.id: line for line in manifest.communities})

    async def search(
        self,
        connection: Connection,
        tenant: UUID,
        artifact: Artifact,
        query: PassageQuery,
        question: Question,
    ) -> FoundCommunities:
        """Return the summaries that fit a query, with what the manifest and the derived graph say of each."""
        found = await self._search.find(connection, tenant, artifact.row, _of_summaries(query), question)
        graph = await self._graph.graph(connection, tenant, artifact.row)
        hits: list[tuple[str, CommunityOut]] = []
        for hit in found.hits:
            identity = hit.source.removeprefix(SOURCE_PREFIX)
            line = artifact.by_id.get(identity)
            edges = list(graph.edges(match.query(graph, subjects=[hit.source], labels=[CONTAINS])))
            members = [CommunityMemberOut(name=edge.object, strength=edge.weight) for edge in edges[:MEMBERS_SHOWN]]
            hits.append(
                (
                    hit.source,
                    CommunityOut(
                        community=identity,
                        score=single(hit.score),
                        text=hit.text,
                        paragraph=hit.paragraph,
                        level=line.level if line else UNSET,
                        parent=line.parent if line and line.parent is not None else UNSET,
                        concept_count=line.concept_count if line else UNSET,
                        members=members or UNSET,
                        members_truncated=True if len(edges) > MEMBERS_SHOWN else UNSET,
                    ),
                )
            )
        return FoundCommunities(artifact, found, hits)


def _of_summaries(query: PassageQuery) -> PassageQuery:
    return PassageQuery(text=query.text, limit=query.limit, floor=query.floor, paths=(f"^{SOURCE_PREFIX}",))


def _missing(row: ContextRow, why: str) -> StrataError:
    return StrataError(
        COMMUNITIES_NOT_FOUND,
        f"{row.name!r} has no summaries of communities: {why}. Make them with `{BUILD_COMMAND} {row.name}`.",
    )
