"""A small made-up subject: one document in three paragraphs, and the facts that they state."""

from __future__ import annotations

from typing import Any

SOURCE = "lights/harrow.md"
PARAGRAPHS = (
    "The Harrow Light was lit in 1871 and stands on Gull Point.",
    "Its keeper is Ida Brandt. Ida Brandt records the weather.",
    "The Harrow Light is not open to visitors.",
)
TEXT = "\n\n".join(PARAGRAPHS)


def fact(subject: str, label: str, object_: str, weight: float = 1.0, **more: Any) -> dict[str, Any]:
    """Return one association to assert."""
    return {"subject": subject, "label": label, "object": object_, "weight": weight, **more}


FACTS = [
    fact("Harrow Light", "lit in", "1871", source=SOURCE, paragraph=0),
    fact("Harrow Light", "stands on", "Gull Point", source=SOURCE, paragraph=0),
    fact("Harrow Light", "keeper", "Ida Brandt", source=SOURCE, paragraph=1),
    fact("Ida Brandt", "records", "weather", source=SOURCE, paragraph=1),
    fact("Harrow Light", "open to", "visitors", -1.0, source=SOURCE, paragraph=2),
]


async def stock(world: Any) -> Any:
    """Create the world's context with the document and its facts; return its handle."""
    context = await world.made(description="what is known of the Harrow Light")
    await context.store_passages({SOURCE: TEXT})
    await context.add_associations(FACTS)
    return context


def triples(matches: Any) -> list[tuple[str, str, str]]:
    """Return the names of associations, in order."""
    return [(match.subject, match.label, match.object) for match in matches]


def cursor(match: Any, *more: str) -> dict[str, Any]:
    """Return where the page after ``match`` begins."""
    return {name: getattr(match, name) for name in ("weight", "subject", "label", "object", *more)}
