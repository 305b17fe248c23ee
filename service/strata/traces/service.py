"""The trace as use cases: record a call, review calls."""

from __future__ import annotations

from strata.traces.recorder import Recorder

__all__ = ["Recorder"]
