"""What a budget for the whole result is spent on: never more than it, and never less for more."""

from __future__ import annotations

import random
import re

import msgspec
import pytest

from expansion_support import Case, tokens
from strata.lookup.budget_view import as_json, markdown
from strata.lookup.schemas import MIN_RESULT_TOKENS

CASES, PARTS = 10_000, 20


def pin_of(place):
    """A place without its anchor; a path may hold the mark too, an anchor never does."""
    return re.sub(r"(/v\d+)#[^#]*$", r"\1", place)


def shown(result):
    """Every byte shown of each revision, the plain rows, and the outlines."""
    marks = set()
    for block in result.blocks:
        pin = pin_of(block.at or "")
        if block.kind == "outline":
            marks.add(("outline", pin))
        elif block.bytes is not None:
            marks.update((pin, at) for at in range(*block.bytes))
        elif block.kind == "row":
            marks.add(("plain", tuple(block.rows), block.text))
    return marks


def check(case, result, limit):
    sent = as_json(result)
    assert tokens(sent) == result.budget.used <= limit == result.budget.limit
    assert tokens(markdown(result)) <= limit
    assert msgspec.json.decode(sent)["omitted"]["total"] >= len(result.omitted.items)
    for block in result.blocks:
        if block.bytes is not None:
            start, end = block.bytes
            assert case.texts[pin_of(block.at)][start:end].decode() == block.text
    if result.omitted.total and any(block.kind != "note" for block in result.blocks):
        assert result.omitted.items
    assert all(item.tokens > 0 for item in result.omitted.items)


@pytest.mark.parametrize("part", range(PARTS))
def test_no_result_is_above_its_budget_and_more_budget_loses_nothing(part):
    for seed in range(part, CASES, PARTS):
        case = Case(seed)
        draw = random.Random(seed)
        low = draw.randint(MIN_RESULT_TOKENS, 1_500)
        high = low + draw.choice([0, 1, 7, 60, 400, 3_000])
        smaller, larger = case.result(low), case.result(high)
        check(case, smaller, low)
        check(case, larger, high)
        assert shown(smaller) <= shown(larger), f"seed {seed}: {low} shows what {high} does not"


def test_the_same_call_gives_the_same_bytes():
    for seed in range(50):
        assert as_json(Case(seed).result(900)) == as_json(Case(seed).result(900))


def test_every_line_of_a_document_is_quoted_and_nothing_else_is():
    """No document can forge a heading, a place or a note: its lines begin with the mark, ours never do."""
    for seed in range(300):
        case = Case(seed)
        result = case.result(4_000)
        quoted = sum(
            len(block.text.splitlines()) for block in result.blocks if block.kind in {"row", "related", "outline"}
        )
        lines = markdown(result).splitlines()
        assert sum(line.startswith(">") for line in lines) == quoted
        ours = [line for line in lines if not line.startswith(">")]
        heads = [line for line in ours if line.startswith("###")]
        assert len(heads) == sum(block.kind != "note" for block in result.blocks)
        assert sum(line.endswith(" tokens.") and " of " in line and line[0].isdigit() for line in ours) >= 1


def test_a_budget_that_is_large_enough_shows_everything():
    for seed in range(100):
        case = Case(seed)
        result = case.result(900_000)
        unshown = [item for item in result.omitted.items if item.rank is not None]
        ranks = {rank for block in result.blocks for rank in block.rows}
        assert ranks == {row.rank for row in case.rows if row.document is None or case.documents[row.document].passages}
        assert all(item.rank in ranks for item in unshown)
