"""Every scenario of the public client, and what each method is exercised by."""

from __future__ import annotations

from wire import scenarios_directory, scenarios_graph, scenarios_packages, scenarios_review, scenarios_text
from wire.public import SCENARIOS, Scenario

MODULES = (scenarios_directory, scenarios_graph, scenarios_packages, scenarios_review, scenarios_text)
NOT_SERVED: dict[str, str] = {}
"""Methods that no scenario calls, each with the reason."""


def every_scenario() -> list[Scenario]:
    """Return the scenarios of all modules."""
    names = {module.__name__ for module in MODULES}
    return [scenario for scenario in SCENARIOS if scenario.steps.__module__ in names]


def exercised() -> dict[str, list[str]]:
    """Return the scenarios of every method."""
    found: dict[str, list[str]] = {}
    for scenario in every_scenario():
        for method in sorted(scenario.methods):
            found.setdefault(method, []).append(scenario.name)
    return found
