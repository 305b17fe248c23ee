"""Where embedding stands, as it is told."""

from __future__ import annotations

from collections.abc import Sequence

from strata.embeddings.model import Failure, SpaceRow, WorkCounts
from strata.embeddings.schemas import MAX_FAILURES, ConfiguredView, ContextEmbeddings, FailureView, SpaceView
from strata.embeddings.upkeep import Facts, wants_index
from strata.embeddings.upkeep_repository import index_statement
from strata.knowledge.model import ContextRow
from strata.providers.embeddings.embedders import EmbedderDescription


def configured_view(description: EmbedderDescription) -> ConfiguredView:
    """Return the configured embedder as it is told."""
    space = description.space
    return ConfiguredView(
        mode=description.mode,
        model=space.model if space else description.model,
        revision=space.revision if space else None,
        dimension=space.dimension if space else None,
        error=description.error,
    )


def coverage(vectors: int, passages: int) -> float:
    """Return the share of passages that have a vector; all of none is 1."""
    return min(1.0, vectors / passages) if passages else 1.0


def context_view(
    context: ContextRow,
    facts: Facts,
    failures: Sequence[Failure],
    description: EmbedderDescription,
    *,
    exact_limit: int,
    is_owner: bool,
) -> ContextEmbeddings:
    """Return how one context is embedded, with what a person should know of it."""
    active = facts.space("active")
    return ContextEmbeddings(
        context_id=context.context_id,
        context=context.name,
        passages=facts.passages,
        coverage=_context_coverage(facts, active),
        configured=configured_view(description),
        spaces=[_space_view(space, facts) for space in facts.spaces],
        failures=[
            FailureView(path=one.path, space=one.space_id, ordinals=one.ordinals, error=one.error)
            for one in failures[:MAX_FAILURES]
        ],
        notes=[
            *_space_notes(context, facts, description),
            *_failure_notes(context, failures),
            *_index_notes(facts, exact_limit, is_owner=is_owner),
        ],
    )


def _context_coverage(facts: Facts, active: SpaceRow | None) -> float:
    if active is None:
        return 0.0 if facts.passages else 1.0
    return coverage(active.vectors, facts.passages)


def _space_view(space: SpaceRow, facts: Facts) -> SpaceView:
    work = facts.work.get(space.space_id, WorkCounts())
    return SpaceView(
        id=space.space_id,
        state=space.state,
        provider=space.space.provider,
        model=space.space.model,
        revision=space.space.revision,
        dimension=space.space.dimension,
        vectors=space.vectors,
        coverage=coverage(space.vectors, facts.passages),
        is_indexed=space.indexed_at is not None,
        removed=space.removed,
        waiting=work.waiting,
        running=work.running,
        failed=facts.failed.get(space.space_id, 0),
        created_at=space.created_at,
        activated_at=space.activated_at,
    )


def _space_notes(context: ContextRow, facts: Facts, description: EmbedderDescription) -> list[str]:
    active, building = facts.space("active"), facts.space("building")
    notes = []
    if description.mode == "none":
        notes.append("Embeddings are off (STRATA_EMBEDDINGS=none): this process embeds nothing.")
    if description.error:
        notes.append(f"The configured embedder could not be had: {description.error}")
    if active is None and facts.passages and description.mode != "none":
        notes.append("No passage is embedded yet; a server does it, or `strata embeddings run`.")
    wanted = description.space
    if (
        active
        and wanted
        and wanted.fingerprint != active.space.fingerprint
        and not _is_of(building, wanted.fingerprint)
    ):
        notes.append(
            f"configured: {wanted.model} ({_details(wanted.dimension, wanted.revision)}); "
            f"active: {active.space.model} ({_details(active.space.dimension, active.space.revision)}); "
            f"run `strata embeddings rebuild {context.name}`"
        )
    if building:
        share = coverage(building.vectors, facts.passages)
        notes.append(
            f"{building.space.model} ({building.space.dimension} dimensions) is being built beside, {share:.0%} done; "
            "it takes over when it is complete."
        )
    return notes


def _details(dimension: int, revision: str) -> str:
    return f"{dimension} dimensions" + (f", {revision[:16]}" if revision else "")


def _is_of(space: SpaceRow | None, fingerprint: bytes) -> bool:
    return space is not None and space.space.fingerprint == fingerprint


def _failure_notes(context: ContextRow, failures: Sequence[Failure]) -> list[str]:
    failed = sum(len(failure.ordinals) for failure in failures)
    if not failed:
        return []
    passages = "1 passage" if failed == 1 else f"{failed:,} passages"
    return [f"{passages} could not be embedded; `strata embeddings run --context {context.name}` tries again."]


def _index_notes(facts: Facts, exact_limit: int, *, is_owner: bool) -> list[str]:
    if is_owner:
        return []
    return [
        f"Space {space.space_id} has no index, and this login role does not own passage_vector. As its owner run: "
        f"{index_statement(space.space_id, space.space.dimension)}"
        for space in facts.spaces
        if space.state != "retired" and space.indexed_at is None and wants_index(space, exact_limit)
    ]
