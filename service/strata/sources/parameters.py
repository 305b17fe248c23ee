"""Query parameters that several routes of sources take."""

from __future__ import annotations

from typing import Annotated

from litestar.params import QueryParameter

MAX_OFFSET = 2**31 - 1
MAX_PREDICATES = 20

Cursor = Annotated[str | None, QueryParameter(description="`nextCursor` of the page before.")]
