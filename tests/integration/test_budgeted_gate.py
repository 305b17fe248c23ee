"""The gate: how many questions over linked documents one budgeted lookup holds every needed sentence of."""

from __future__ import annotations

from pathlib import Path

from strata.evaluate.budgeted import CEILING, ROWS, TEXTS, WHOLE, BudgetMeasure, Quote, holds
from strata.platform.ids import DEFAULT_TENANT

LINKED = Path(__file__).parents[1] / "data" / "linked"


async def test_a_budgeted_lookup_holds_more_than_plain_search_and_than_rows_alone(services):
    measure = BudgetMeasure(services.contexts, services.sources, services.embeddings, services.lookup)
    found = await measure.run(DEFAULT_TENANT, LINKED)
    shares = {(item.way, item.budget): item.share for item in found.counted}
    assert found.questions == 42
    for budget, least in ((800, 0.64), (1_500, 0.76), (3_000, 0.88)):
        whole = shares[WHOLE, budget]
        assert whole >= least, (budget, whole)
        assert whole >= shares[TEXTS, budget] - 0.01
        assert whole > shares[ROWS, budget] - 0.01
        assert whole > shares[CEILING, budget]
    assert shares[WHOLE, 3_000] > shares[TEXTS, 3_000] + 0.05
    assert all(item.tokens <= item.budget for item in found.counted if item.way in (ROWS, WHOLE))
    assert found.absent >= 0.8


def test_a_quote_counts_in_its_own_revision_alone():
    quote = Quote(source="a.md", revision=2, quote="The pump is  shut.")
    assert holds([quote], [("a.md/v2", "Before. The pump\nis shut.")])
    assert not holds([quote], [("a.md/v1", "The pump is shut.")])
    assert not holds([quote], [("b.md/v2", "The pump is shut.")])
    assert holds([], [])
