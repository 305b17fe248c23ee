"""What the tests of revisions and of the archive share."""

from __future__ import annotations

import pytest

from ingest_support import rows
from scenario_support import CONTEXT, doc, put
from strata.errors import StrataError
from strata.platform.ids import DEFAULT_TENANT

LEAVE = "# Leave\n\n## Vacation\n\nEveryone has {} days of vacation a year.\n"


async def leave(services, *days, path="leave.md", **fields):
    for number in days:
        await put(services, doc(path, LEAVE.format(number), **fields))


async def text(services, ref, context=CONTEXT, tenant=DEFAULT_TENANT, **more):
    return (await services.sources.read_text(tenant, context, ref, **more)).text


async def history(services, ref="leave.md", context=CONTEXT, **more):
    page = await services.sources.revisions.page(DEFAULT_TENANT, context, ref, **more)
    return [(view.revision, view.state) for view in page.items]


async def refusal(call):
    with pytest.raises(StrataError) as caught:
        await call
    return caught.value


async def kept(services):
    return [tuple(row) for row in await rows(services, "SELECT path, revision FROM source_revision ORDER BY 1, 2")]


async def counts(services):
    """How many rows there are of everything that hangs on a source."""
    found = await rows(
        services,
        "SELECT (SELECT count(*) FROM source), (SELECT count(*) FROM source_revision), "
        "(SELECT count(*) FROM source_content), (SELECT count(*) FROM section), (SELECT count(*) FROM passage), "
        "(SELECT count(*) FROM hint_entry), (SELECT count(*) FROM passage_vector)",
    )
    return tuple(found[0])
