"""Relations between documents over a real database: resolved when they are read, from either end."""

import httpx
import pytest

from ingest_support import make_kit, rows
from strata.app import create_app
from strata.errors import StrataError
from strata.platform.ids import DEFAULT_TENANT, new_id
from strata.sources import relation_repository
from strata.sources.model import DocumentInput
from strata.sources.relation_repository import Place

pytestmark = pytest.mark.database
T = DEFAULT_TENANT


@pytest.fixture
async def kit(settings, database):
    made = make_kit(database, settings)
    yield made
    await made.sources.close()


def doc(path, body="Some words.\n", context_metadata=None, **declared):
    """A Markdown document; ``supersedes="x.md"`` declares a relation."""
    matter = "".join(f"rel-{name.replace('_', '-')}: {value}\n" for name, value in declared.items())
    return DocumentInput(
        path=path,
        content=f"---\ntitle: The {path}\n{matter}---\n# {path}\n\n{body}",
        metadata=context_metadata or {},
    )


async def put(kit, *documents, context="c", tenant=T):
    report = await kit.sources.ingest(tenant, context, documents)
    assert report.refused == 0, report.refusals
    return report


async def of(kit, source, context="c", tenant=T, **options):
    page = await kit.sources.relations.of(tenant, context, source, **options)
    return page.items


def brief(items):
    return [
        (
            item.direction[:3],
            item.predicate,
            item.state,
            item.source.path if item.direction == "INCOMING" else item.path,
        )
        for item in items
    ]


async def test_a_relation_is_seen_from_both_ends(kit):
    await put(
        kit,
        doc("policies/new.md", supersedes="old.md", depends_on="../base.md#some-part"),
        doc("policies/old.md"),
        doc("base.md", "## Some part\n\nText.\n"),
    )
    out = await of(kit, "policies/new.md")
    assert brief(out) == [
        ("OUT", "supersedes", "RESOLVED", "policies/old.md"),
        ("OUT", "depends-on", "RESOLVED", "base.md"),
    ]
    assert (out[0].title, out[0].revision, out[0].target, out[0].anchor_found) == (
        "The policies/old.md",
        1,
        "old.md",
        None,
    )
    assert (out[1].anchor, out[1].anchor_found) == ("some-part", True)
    incoming = await of(kit, "policies/old.md")
    assert brief(incoming) == [("INC", "supersedes", "RESOLVED", "policies/new.md")]
    assert incoming[0].source.title == "The policies/new.md"
    assert incoming[0].path == "policies/old.md"


async def test_a_target_that_arrives_later_resolves_and_one_that_is_deleted_dangles_again(kit):
    await put(kit, doc("a.md", supersedes="later.md"))
    assert brief(await of(kit, "a.md")) == [("OUT", "supersedes", "DANGLING", "later.md")]
    assert await kit.sources.relations.count_dangling(T, "c") == 1
    await put(kit, doc("later.md"))
    assert brief(await of(kit, "a.md")) == [("OUT", "supersedes", "RESOLVED", "later.md")]
    assert brief(await of(kit, "later.md")) == [("INC", "supersedes", "RESOLVED", "a.md")]
    assert await kit.sources.relations.count_dangling(T, "c") == 0
    await kit.sources.delete(T, "c", "later.md")
    assert brief(await of(kit, "a.md")) == [("OUT", "supersedes", "DANGLING", "later.md")]
    await put(kit, doc("later.md"))
    await kit.sources.delete(T, "c", "a.md")
    assert await of(kit, "later.md") == []
    assert await rows(kit, "SELECT * FROM document_relation") == []


async def test_a_target_that_is_archived_is_told_from_one_that_is_missing(kit):
    await put(kit, doc("a.md", x="gone, missing"), doc("gone.md"))
    await kit.sources.revisions.archive(T, "c", "gone.md")
    gone, missing = await of(kit, "a.md")
    assert (gone.state, gone.path, gone.title, gone.revision) == ("ARCHIVED", "gone.md", "The gone.md", 1)
    assert (missing.state, missing.path, missing.title, missing.revision) == ("DANGLING", "missing", None, None)
    assert await kit.sources.relations.count_dangling(T, "c") == 1
    with pytest.raises(StrataError) as caught:
        await of(kit, "gone.md")
    assert caught.value.code == "source_archived"


async def test_ingesting_again_replaces_the_relations(kit):
    await put(kit, doc("a.md", supersedes="b.md", depends_on="b.md"), doc("b.md"))
    await put(kit, doc("a.md", implements="b.md"))
    assert brief(await of(kit, "a.md")) == [("OUT", "implements", "RESOLVED", "b.md")]
    assert brief(await of(kit, "b.md")) == [("INC", "implements", "RESOLVED", "a.md")]
    assert await rows(kit, "SELECT count(*) FROM document_relation") == [(1,)]
    await put(kit, doc("a.md"))
    assert await of(kit, "a.md") == []
    with pytest.raises(StrataError) as caught:
        await of(kit, "a.md/v1")
    assert caught.value.code == "source_not_found"


async def test_metadata_of_a_request_declares_for_every_format_and_for_documents_named_by_id(kit):
    await put(
        kit,
        DocumentInput(id="note-1", content="words", metadata={"rel-x": "notes/two.txt"}),
        DocumentInput(path="notes/two.txt", content="words", metadata={"rel-y": ["/note-1", "three.csv"]}),
        DocumentInput(path="notes/three.csv", content="a,b\n1,2\n"),
    )
    assert brief(await of(kit, "note-1")) == [
        ("OUT", "x", "RESOLVED", "notes/two.txt"),
        ("INC", "y", "RESOLVED", "notes/two.txt"),
    ]
    assert brief(await of(kit, "notes/two.txt", direction="outgoing")) == [
        ("OUT", "y", "RESOLVED", "note-1"),
        ("OUT", "y", "RESOLVED", "notes/three.csv"),
    ]


async def test_a_url_is_external_unless_a_source_has_it_for_its_path(kit):
    await put(
        kit,
        doc("a.md", x="https://here.example/page#part, https://else.example/page"),
        DocumentInput(path="https://here.example/page", content="# Page\n\n## Part\n", media_type="text/markdown"),
    )
    here, elsewhere = await of(kit, "a.md")
    assert (here.state, here.path, here.anchor, here.anchor_found) == (
        "RESOLVED",
        "https://here.example/page",
        "part",
        True,
    )
    assert (elsewhere.state, elsewhere.path) == ("EXTERNAL", "https://else.example/page")
    assert brief(await of(kit, "https://here.example/page")) == [("INC", "x", "RESOLVED", "a.md")]
    assert await kit.sources.relations.count_dangling(T, "c") == 0


@pytest.mark.parametrize(
    ("target", "path"),
    [
        ("b", "dir/b.md"),
        ("b.md", "dir/b.md"),
        ("../guide", "guide/index.md"),
        ("../guide/", "guide/index.md"),
        ("/other", "other/README.md"),
        ("../exact", "exact"),
        ("'[[B]]'", "dir/b.md"),
        ("'[[guide/index]]'", "guide/index.md"),
    ],
)
async def test_what_a_path_may_leave_out(kit, target, path):
    await put(
        kit,
        doc("dir/a.md", x=target),
        *(doc(name) for name in ("dir/b.md", "guide/index.md", "guide/README.md", "other/README.md", "exact.md")),
        DocumentInput(path="exact", content="words"),
    )
    assert brief(await of(kit, "dir/a.md")) == [("OUT", "x", "RESOLVED", path)]
    assert brief(await of(kit, path)) == [("INC", "x", "RESOLVED", "dir/a.md")]


async def test_of_several_documents_of_a_name_the_nearest_is_meant(kit):
    names = ("z/deep/er/plan.md", "y/plan.md", "x/plan.md", "own/Plan.txt", "planned.md")
    await put(kit, doc("own/a.md", x="'[[Plan]]'"), doc("root.md", x="'[[PLAN]]'"), *(doc(name) for name in names))
    assert brief(await of(kit, "own/a.md")) == [("OUT", "x", "RESOLVED", "own/Plan.txt")]
    assert brief(await of(kit, "root.md")) == [("OUT", "x", "RESOLVED", "x/plan.md")]
    assert brief(await of(kit, "own/Plan.txt")) == [("INC", "x", "RESOLVED", "own/a.md")]
    assert brief(await of(kit, "x/plan.md")) == [("INC", "x", "RESOLVED", "root.md")]
    assert await of(kit, "y/plan.md") == []
    await kit.sources.delete(T, "c", "x/plan.md")
    assert brief(await of(kit, "y/plan.md")) == [("INC", "x", "RESOLVED", "root.md")]


async def test_links_are_navigation_and_kept_apart(kit):
    body = "[top](b.md)\n\n## Part\n\n[again](b.md) [[B]] [out](https://x.example)\n\n### Inner\n\n[[C#Head|see]]\n"
    await put(kit, doc("a.md", body, x="b.md"), doc("b.md"), doc("c.md", "## Head\n"))
    assert brief(await of(kit, "a.md")) == [("OUT", "x", "RESOLVED", "b.md")]
    found = await of(kit, "a.md", kind="links")
    assert [(one.kind, one.predicate, one.path, one.label, one.section, one.count) for one in found] == [
        ("LINK", None, "b.md", "top", ["a.md"], 2),
        ("LINK", None, "b.md", None, ["a.md", "Part"], 1),
        ("LINK", None, "c.md", "see", ["a.md", "Part", "Inner"], 1),
    ]
    assert found[2].anchor_found is True
    assert found[2].target == "[[C#Head]]"
    assert brief(await of(kit, "b.md", kind="all")) == [
        ("INC", "x", "RESOLVED", "a.md"),
        ("INC", None, "RESOLVED", "a.md"),
        ("INC", None, "RESOLVED", "a.md"),
    ]


@pytest.mark.parametrize(
    ("anchor", "is_found"),
    [("two-words", True), ("Two Words", True), ("TWO-WORDS", True), ("own", True), ("no", False)],
)
async def test_a_section_is_found_by_its_anchor_or_its_heading(kit, anchor, is_found):
    await put(kit, doc("a.md", x=f"'b.md#{anchor}'"), doc("b.md", "## Two Words\n\n## Declared {#own}\n"))
    (found,) = await of(kit, "a.md")
    assert (found.anchor, found.anchor_found) == (anchor, is_found)


async def test_a_document_says_what_supersedes_it(kit):
    await put(
        kit,
        doc("old.md", superseded_by="z-own.md, not-there.md, [[Nobody]]"),
        doc("z-own.md"),
        doc("b-new.md", supersedes="old.md"),
        doc("a-new.md", supersedes="'[[Old]]'"),
        doc("other/old.md"),
        doc("other/new.md", supersedes="'[[old]]'"),
    )
    detail = await kit.sources.get(T, "c", "old.md")
    assert detail.superseded_by == ["[[Nobody]]", "a-new.md", "b-new.md", "not-there.md", "z-own.md"]
    assert (await kit.sources.get(T, "c", "other/old.md")).superseded_by == ["other/new.md"]
    assert (await kit.sources.get(T, "c", "z-own.md")).superseded_by == []
    await kit.sources.delete(T, "c", "b-new.md")
    assert "b-new.md" not in (await kit.sources.get(T, "c", "old.md")).superseded_by


async def test_relations_stay_within_their_context_and_tenant(kit):
    other = new_id()
    await put(kit, doc("a.md", x="b.md, [[B]]"), context="one")
    await put(kit, doc("b.md"), doc("a.md"), context="two")
    await put(kit, doc("b.md"), doc("new.md", supersedes="a.md"), context="one", tenant=other)
    assert {item.state for item in await of(kit, "a.md", "one")} == {"DANGLING"}
    assert await of(kit, "b.md", "two") == []
    assert await of(kit, "b.md", "one", other) == []
    assert (await kit.sources.get(T, "one", "a.md")).superseded_by == []
    assert (await kit.sources.relations.all(T, "two")).items == []
    assert await kit.sources.relations.count_dangling(T, "two") == 0
    await put(kit, doc("b.md"), context="one")
    assert {item.state for item in await of(kit, "a.md", "one")} == {"RESOLVED"}
    assert await of(kit, "b.md", "one", other) == []


async def walk(read, limit):
    """Every item that pages of one size give, one page after the other."""
    found, cursor = [], None
    while True:
        page = await read(limit=limit, cursor=cursor)
        assert len(page.items) == limit or page.next_cursor is None
        found += page.items
        if page.next_cursor is None:
            return found
        cursor = page.next_cursor


@pytest.mark.parametrize("limit", [1, 2, 7])
async def test_pages_give_every_relation_once_and_in_order(kit, limit):
    body = "[[F1]] [[F2]] [[Missing]]\n"
    await put(
        kit,
        doc("hub.md", body, x="f1.md, f2.md, missing.md", y="f1.md"),
        *(doc(f"f{number}.md", "[[hub]] [h](hub.md)\n", supersedes="hub.md", z="'[[hub]]'") for number in range(1, 5)),
    )
    relations = kit.sources.relations

    def one(**options):
        return relations.of(T, "c", "hub.md", kind="all", **options)

    whole = (await one(limit=100)).items
    assert await walk(one, limit) == whole
    assert brief(whole) == [
        ("OUT", "x", "RESOLVED", "f1.md"),
        ("OUT", "x", "RESOLVED", "f2.md"),
        ("OUT", "x", "DANGLING", "missing.md"),
        ("OUT", "y", "RESOLVED", "f1.md"),
        ("OUT", None, "RESOLVED", "f1.md"),
        ("OUT", None, "RESOLVED", "f2.md"),
        ("OUT", None, "DANGLING", None),
        *(("INC", name, "RESOLVED", f"f{number}.md") for number in range(1, 5) for name in ("supersedes", "z")),
        *(("INC", None, "RESOLVED", f"f{number}.md") for number in range(1, 5) for _ in range(2)),
    ]
    some = await relations.of(T, "c", "hub.md", kind="all", direction="incoming", predicates=["Z", "\x00"])
    assert {item.predicate for item in some.items} == {"z"}
    assert (await relations.of(T, "c", "hub.md", predicates=[])).items == []

    def every(**options):
        return relations.all(T, "c", kind="all", **options)

    whole = (await every(limit=100)).items
    assert await walk(every, limit) == whole
    assert [item.source.path for item in whole] == sorted(item.source.path for item in whole)
    dangling = await walk(lambda **options: relations.all(T, "c", kind="all", state="DANGLING", **options), 1)
    assert [item.target for item in dangling] == ["missing.md", "[[Missing]]"]
    assert await relations.count_dangling(T, "c") == 1


async def test_a_cursor_of_another_question_is_refused(kit):
    await put(kit, doc("a.md", x="b.md, c.md, d.md"), doc("b.md", x="a.md, c.md"))
    await put(kit, doc("a.md", x="b.md, c.md, d.md"), context="d")
    relations = kit.sources.relations
    cursor = (await relations.of(T, "c", "a.md", limit=1)).next_cursor
    assert cursor
    assert (await relations.of(T, "c", "a.md", limit=2, cursor=cursor)).items
    everything = (await relations.all(T, "c", limit=1)).next_cursor
    for question in (
        {"context": "d", "source": "a.md", "cursor": cursor},
        {"context": "c", "source": "b.md", "cursor": cursor},
        {"context": "c", "source": "a.md", "cursor": cursor, "direction": "outgoing"},
        {"context": "c", "source": "a.md", "cursor": cursor, "kind": "all"},
        {"context": "c", "source": "a.md", "cursor": cursor, "predicates": ["x"]},
        {"context": "c", "source": "a.md", "cursor": everything},
        *({"context": "c", "source": "a.md", "cursor": bad} for bad in ("nonsense", "AAAA", cursor[:-8], "é", "\x00")),
    ):
        options = {name: value for name, value in question.items() if name not in {"context", "source"}}
        with pytest.raises(StrataError) as caught:
            await relations.of(T, question["context"], question["source"], **options)
        assert (caught.value.code, caught.value.pointer) == ("invalid_request", "?cursor")
    with pytest.raises(StrataError):
        await relations.all(T, "c", state="DANGLING", cursor=everything)


@pytest.mark.parametrize(
    ("options", "pointer"),
    [
        ({"limit": 0}, "?limit"),
        ({"limit": 101}, "?limit"),
        ({"direction": "up"}, "?direction"),
        ({"kind": "none"}, "?kind"),
    ],
)
async def test_a_value_out_of_bounds_is_named(kit, options, pointer):
    await put(kit, doc("a.md"))
    with pytest.raises(StrataError) as caught:
        await of(kit, "a.md", **options)
    assert (caught.value.code, caught.value.pointer) == ("invalid_request", pointer)


async def test_names_of_every_script_are_found(kit):
    await put(
        kit,
        doc(
            "a.md",
            "[[漢字の文書]] [[שלום עולם]] [[🙂 NOTES]] [[ÜBER]] [漢](漢字の文書.md)\n",
            x="'[[über]], 🙂 notes.md'",
        ),
        *(doc(name) for name in ("漢字の文書.md", "שלום עולם.md", "🙂 notes.md", "Über.md")),
    )
    found = await of(kit, "a.md", kind="all")
    assert [(item.state, item.path) for item in found] == [
        ("RESOLVED", "Über.md"),
        ("RESOLVED", "🙂 notes.md"),
        ("RESOLVED", "漢字の文書.md"),
        ("RESOLVED", "שלום עולם.md"),
        ("RESOLVED", "🙂 notes.md"),
        ("RESOLVED", "Über.md"),
        ("RESOLVED", "漢字の文書.md"),
    ]
    assert brief(await of(kit, "Über.md")) == [("INC", "x", "RESOLVED", "a.md")]


async def test_what_cannot_be_a_target_is_a_warning_of_the_source(kit):
    report = await put(kit, doc("a.md", x="../up.md, a%00b.md, b\\x00.md, a.md, ok.md", ok=""))
    (outcome,) = report.outcomes
    assert [warning.partition(" and was")[0] for warning in outcome.warnings] == [
        "rel-x: '../up.md' leads above the root",
        "rel-x: 'a%00b.md' holds control characters",
        "rel-x: 'a.md' is the document itself",
        "rel-ok names no document",
    ]
    assert [item.path for item in await of(kit, "a.md")] == ["b\\x00.md", "ok.md"]
    for ugly in ("no\x00", "no\ud800", "x" * 5_000, ""):
        with pytest.raises(StrataError) as caught:
            await of(kit, ugly)
        assert caught.value.code == "source_not_found"


async def test_ten_thousand_links_keep_a_thousand_and_say_so(kit):
    body = "\n".join(f"- [l{number}](d{number}.md) [[Hub]]" for number in range(10_000))
    report = await put(kit, doc("many.md", body), doc("hub.md"))
    assert "9,001 links beyond 1,000 were left out." in report.outcomes[0].warnings
    found = await walk(lambda **options: kit.sources.relations.of(T, "c", "many.md", kind="links", **options), 100)
    assert len(found) == 1_000
    assert [(item.path, item.count) for item in found if item.state == "RESOLVED"] == [("hub.md", 10_000)]


async def test_the_way_in_is_read_by_the_index_of_targets(kit):
    await put(kit, doc("hub.md"), *(doc(f"d{number}.md", x=f"e{number}.md, hub.md") for number in range(400)))
    await put(
        kit, *(doc(f"n{number}.md", "[[Hub]]\n", y=", ".join(f"m{n}.md" for n in range(100))) for number in range(100))
    )
    async with kit.database.owner() as connection:
        await connection.execute("ANALYZE source, document_relation, section")
    context = (await rows(kit, "SELECT context_id, source_id FROM source WHERE path = 'hub.md'"))[0]
    async with kit.database.work(T) as connection:
        seen = _Explained(connection)
        wanted = relation_repository.Wanted(has_links=True)
        await relation_repository.page_of(seen, T, context[0], context[1], wanted, after=Place(), limit=51)
        await relation_repository.superseding(seen, T, context[0], [context[1]])
    for plan in seen.plans:
        assert "document_relation_target_idx" in plan
        assert "Seq Scan on document_relation" not in plan
    found = await walk(lambda **options: kit.sources.relations.of(T, "c", "hub.md", kind="all", **options), 100)
    assert len(found) == 500


class _Explained:
    """A connection that keeps the plans of what is fetched over it."""

    def __init__(self, connection):
        self._connection = connection
        self.plans = []

    async def fetch(self, query, *args):
        plan = await self._connection.fetch(f"EXPLAIN {query}", *args)
        self.plans.append("\n".join(row[0] for row in plan))
        return []


async def test_relations_are_read_over_rest(settings, services):
    transport = httpx.ASGITransport(create_app(settings, services=services), raise_app_exceptions=False)
    base = "http://strata.test/api/v1/contexts/c"
    async with httpx.AsyncClient(transport=transport, base_url=base) as client:
        documents = [
            {
                "path": "hr/new.md",
                "content": "# New\n\n[[Old]]\n",
                "metadata": {"rel-supersedes": "old.md", "rel-a": "no"},
            },
            {"path": "hr/old.md", "content": "# Old\n"},
        ]
        assert (await client.post("/sources", json={"documents": documents})).json()["added"] == 2
        page = (await client.get("/relations/hr/new.md", params={"kind": "all", "limit": 2})).json()
        assert [item["predicate"] for item in page["items"]] == ["supersedes", "a"]
        rest = await client.get("/relations/hr/new.md", params={"kind": "all", "cursor": page["nextCursor"]})
        assert rest.json() == {
            "items": [
                {
                    "direction": "OUTGOING",
                    "kind": "LINK",
                    "predicate": None,
                    "state": "RESOLVED",
                    "source": {"path": "hr/new.md", "title": "New", "revision": 1},
                    "target": "[[Old]]",
                    "path": "hr/old.md",
                    "title": "Old",
                    "revision": 1,
                    "anchor": None,
                    "anchorFound": None,
                    "label": None,
                    "section": ["New"],
                    "count": 1,
                }
            ],
            "nextCursor": None,
        }
        incoming = await client.get(
            "/relations/hr%2Fold.md",
            params=[("direction", "incoming"), ("predicate", "supersedes"), ("predicate", "x")],
        )
        assert [item["source"]["path"] for item in incoming.json()["items"]] == ["hr/new.md"]
        assert (await client.get("/sources/hr/old.md")).json()["supersededBy"] == ["hr/new.md"]
        dangling = (await client.get("/relations", params={"state": "DANGLING"})).json()
        assert [(item["target"], item["path"]) for item in dangling["items"]] == [("no", "hr/no")]
        for path, pointer in (
            ("/relations?state=LOST", "?state"),
            ("/relations?cursor=x", "?cursor"),
            ("/relations/hr/new.md?direction=up", "?direction"),
            ("/relations/hr/new.md?limit=101", "?limit"),
            ("/relations/hr/new.md?cursor=x", "?cursor"),
        ):
            refused = await client.get(path)
            assert (refused.status_code, refused.json()["pointer"]) == (400, pointer), path
        missing = await client.get("/relations/hr/none.md")
        assert (missing.status_code, missing.json()["code"]) == (404, "source_not_found")


async def test_the_name_of_a_source_is_its_file_name_without_extension_in_lower_case(kit):
    names = {
        "Dir/Plan B.md": "plan b",
        "Über/ÄÖ.Draft.md": "äö.draft",
        ".hidden": ".hidden",
        "no-extension": "no-extension",
        "https://a.example/Page.html": "page",
        "漢字.txt": "漢字",
    }
    await put(kit, *(DocumentInput(path=path, content="words", media_type="text/plain") for path in names))
    found = await rows(kit, "SELECT path, link_name, (relation_names(path))[4] FROM source")
    assert {row[0]: row[1] for row in found} == names
    assert all(row[1] == row[2] for row in found)
