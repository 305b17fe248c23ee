"""What a check of ``strata doctor`` says."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct


class Status(StrEnum):
    """WARN: it works, but look at it. FAIL: it does not."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


class Check(Struct, frozen=True, rename="camel"):
    """One check; ``remedy`` is None where there is nothing to mend."""

    name: str
    status: Status
    detail: str
    remedy: str | None = None
