"""Texts by name over a real database: exact, replaced whole, found by the lookup, cited by paragraph."""

from __future__ import annotations

import asyncio
from uuid import uuid4

import asyncpg
import pytest

from embedding_support import check_vectors
from ingest_support import check, rows, search
from scenario_support import ask, sources
from strata.errors import CONTEXT_NOT_FOUND, StrataError
from strata.platform.ids import DEFAULT_TENANT as T
from strata.sources import write_repository
from strata.sources.model import DocumentInput, Locator
from strata.sources.text_service import Cited, TextEntry
from strata.sources.texts import TextSource

pytestmark = pytest.mark.database


def make_pdf(*pages):
    """A PDF with one line of text on each page."""
    count = len(pages)
    kids = " ".join(f"{4 + 2 * number} 0 R" for number in range(count))
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {count} >>",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for number, text in enumerate(pages):
        objects.append(
            "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Resources << /Font << /F1 3 0 R >> >> "
            f"/Contents {5 + 2 * number} 0 R >>"
        )
        drawn = f"BT /F1 12 Tf 72 700 Td ({text}) Tj ET"
        objects.append(f"<< /Length {len(drawn)} >>\nstream\n{drawn}\nendstream")
    body, places = b"%PDF-1.4\n", []
    for number, content in enumerate(objects, 1):
        places.append(len(body))
        body += f"{number} 0 obj\n{content}\nendobj\n".encode()
    table = "".join(f"{place:010} 00000 n \n" for place in places)
    size = len(objects) + 1
    end = f"xref\n0 {size}\n0000000000 65535 f \n{table}trailer\n<< /Size {size} /Root 1 0 R >>\n"
    return body + f"{end}startxref\n{len(body)}\n%%EOF\n".encode()


NOTES = "導入。\n\n本編 over\r\ntwo lines.\n\nThe heron nests in reeds."


async def put(services, *texts, context="kb", tenant=T):
    service = services.sources.texts
    prepared = await service.prepare(texts)
    async with services.database.work(tenant) as connection:
        row = await services.contexts.ensure(connection, tenant, context)
        stored = await service.put(connection, tenant, row, prepared)
    service.wake(tenant, row.context_id)
    return stored


async def inside(services, call, *args, context="kb", tenant=T, **more):
    async with services.database.work(tenant) as connection:
        row = await services.contexts.resolve(connection, tenant, context)
        return await call(connection, tenant, row.context_id, *args, **more)


async def cite(services, *pairs):
    return await inside(services, services.sources.texts.cite, pairs)


async def revision(services):
    return (await services.contexts.get(T, "kb")).revisions.passages


async def test_a_text_comes_back_byte_for_byte(services):
    text = "\ufeff  a\r\n\n\u2028b\x1c\n👩‍👩‍👧 \u202eאב\r\n"
    await put(services, TextSource("./odd//name", text))
    assert await services.sources.texts.lookup(T, "kb", ["./odd//name", "none", "none", "n\x00"]) == (
        {"./odd//name": text},
        ["none", "n\x00"],
    )
    await check(services)


async def test_paragraphs_are_cited_with_section_and_locator(services):
    await put(
        services,
        TextSource("doc.md", NOTES, sections=[(1, "本編\x1fz")], locators=[(1, "page", "12"), (2, "sheet", "A1:C4")]),
    )
    found = await cite(services, ("doc.md", 0), ("doc.md", 1), ("doc.md", 2), ("doc.md", 3), ("gone", 0), ("g\x00", 0))
    cited = {number: (one.text, one.section, one.locator) for (_, number), one in found.found.items()}
    assert cited == {
        0: ("導入。", None, None),
        1: ("本編 over\r\ntwo lines.", "本編\x1fz", Locator("page", "12")),
        2: ("The heron nests in reeds.", "本編\x1fz", Locator("sheet", "A1:C4")),
    }
    assert found.no_paragraph == [("doc.md", 3)]
    assert found.no_source == [("gone", 0), ("g\x00", 0)]


@pytest.mark.parametrize("number", [-1, 1 << 20, (1 << 20) + 1, 1 << 70, -(1 << 70)])
async def test_a_number_beyond_a_source_is_never_a_passage_of_another(services, number):
    await put(services, TextSource("a", "one\n\ntwo"), TextSource("b", "three\n\nfour"))
    assert (await cite(services, ("a", number))).no_paragraph == [("a", number)]


async def test_two_pages_of_one_pdf_give_two_locators(services):
    pages = [f"Page number {number} speaks of topic {number}." for number in range(1, 18)]
    await services.sources.ingest(T, "kb", [DocumentInput(path="book.pdf", content=make_pdf(*pages))])
    numbers = range((await inside(services, services.sources.texts.paragraphs, ["book.pdf"]))["book.pdf"])
    found = (await cite(services, *(("book.pdf", number) for number in numbers))).found
    assert found["book.pdf", 0].locator == Locator("page", "1")
    by_page = {cited.locator.value: cited.text for cited in found.values()}
    assert "topic 3." in by_page["3"]
    assert "topic 17." in by_page["17"]


async def test_a_markdown_passage_is_cited_under_its_innermost_heading(services):
    content = "# Leave\n\nTwenty-five days.\n\n## Carry over\n\nTen days."
    await services.sources.ingest(T, "kb", [DocumentInput(path="a.md", content=content)])
    found = (await cite(services, ("a.md", 0), ("a.md", 1))).found
    assert [cited.section for cited in found.values()] == ["Leave", "Carry over"]


async def test_the_lookup_finds_paragraphs_their_questions_and_their_section(services):
    await put(
        services,
        TextSource("birds", NOTES, questions=[(2, "Where do wading birds breed?")], sections=[(2, "Ornithology")]),
        TextSource("other", "Nothing about it.\n\nNor here."),
    )
    for query in ("heron reeds", "wading birds breed", "ornithology"):
        result = await ask(services, query, context="kb", content=True)
        assert sources(result)[0] == "birds", query
        assert result.evidence_blocks[0].content == "The heron nests in reeds."
    assert await rows(services, "SELECT 1 FROM hint_entry") == []


async def test_a_replacement_leaves_nothing_of_what_was_there(services):
    await put(
        services,
        TextSource(
            "a",
            "alpha\n\nbeta",
            questions=[(0, "zebra question")],
            sections=[(1, "Sect")],
            locators=[(1, "page", "2")],
            tags=["old\x1ftag", "[]"],
            date=5,
        ),
    )
    assert [row[0] for row in await rows(services, "SELECT tags FROM source")] == [["old\x1ftag", "[]"]]
    await put(services, TextSource("a", "gamma"))
    assert await search(services, "kb", "alpha") == []
    assert await search(services, "kb", "zebra") == []
    assert await search(services, "kb", "gamma") == ["a"]
    assert await rows(services, "SELECT 1 FROM passage_question") == []
    assert (await cite(services, ("a", 0))).found["a", 0].section is None
    page = await inside(services, services.sources.texts.page)
    assert [(entry.name, entry.date, list(entry.tags)) for entry in page.entries] == [("a", None, [])]
    assert (await services.sources.get(T, "kb", "a")).revision == 2
    await check(services)


async def test_the_same_text_again_is_only_stamped_anew(services):
    await put(services, TextSource("a", "alpha", tags=["t"], stored_at=1_000))
    before = await revision(services)
    await put(services, TextSource("a", "alpha", tags=["t"]))
    page = await inside(services, services.sources.texts.page)
    assert page.entries[0].stored_at > 1_700_000_000
    assert (await services.sources.get(T, "kb", "a")).revision == 1
    assert await revision(services) == before + 1, "a window of time may now leave other sources"
    await put(services, TextSource("a", "alpha", tags=["t"], stored_at=2_000), TextSource("b", "beta", stored_at=-7))
    page = await inside(services, services.sources.texts.page)
    assert [entry.stored_at for entry in page.entries] == [2_000, -7]


async def test_a_text_and_a_document_of_one_name_replace_each_other(services):
    document = DocumentInput(path="a.md", content="# Title\n\nalpha")
    await services.sources.ingest(T, "kb", [document])
    await put(services, TextSource("a.md", "# Title\n\nalpha"))
    assert (await inside(services, services.sources.texts.paragraphs, ["a.md"])) == {"a.md": 2}
    assert await rows(services, "SELECT 1 FROM hint_entry") == []
    report = await services.sources.ingest(T, "kb", [document])
    assert report.replaced == 1
    assert (await services.sources.get(T, "kb", "a.md")).format == "markdown"
    await check(services)


async def test_removed_texts_are_gone_everywhere(embedding_services):
    services = embedding_services
    await put(
        services,
        TextSource("a", "alpha\n\nbeta", questions=[(0, "zebra")], sections=[(0, "S")]),
        TextSource("b", "gamma"),
    )
    await services.embeddings.run(T)
    await check_vectors(services, T)
    removed = await inside(services, services.sources.texts.remove, ["a", "a", "never", "n\x00"])
    assert removed == 1
    for table in ("source", "source_content", "section", "passage", "passage_vector"):
        assert len(await rows(services, f"SELECT 1 FROM {table}")) == 1, table
    assert await rows(services, "SELECT 1 FROM passage_question") == []
    assert await search(services, "kb", "zebra alpha") == []
    await check_vectors(services, T)
    await check(services)


async def test_vectors_follow_a_text_and_those_of_equal_paragraphs_are_kept(embedding_services, embedder):
    services = embedding_services
    await put(services, TextSource("a", "alpha one\n\nbeta two"))
    await services.embeddings.run(T)
    await put(services, TextSource("a", "beta two\n\ngamma three"))
    await services.embeddings.run(T)
    await check_vectors(services, T)
    assert [text for batch in embedder.calls for text in batch].count("beta two") == 1


async def test_pages_hold_every_name_once_in_code_point_order(services, dsn):
    names = ["b", "B", "a/1", "a/10", "a/2", "é", "日"]
    await put(services, *(TextSource(name, name, tags=["t"], date=7) for name in names))
    await _assert_fact(services, dsn, "a/10", "fact only", "")
    texts = services.sources.texts
    got, after = [], ""
    while True:
        page = await inside(services, texts.page, after=after, limit=3)
        assert page.total == len(names) + 1
        if not page.entries:
            break
        got += page.entries
        after = page.entries[-1].name
    assert [entry.name for entry in got] == sorted([*names, "fact only"])
    assert got[[entry.name for entry in got].index("fact only")] == TextEntry("fact only")
    assert all(entry.date == 7 and entry.tags == ["t"] for entry in got if entry.name != "fact only")
    narrow = await inside(services, texts.page, prefix="a/1")
    assert (narrow.total, [entry.name for entry in narrow.entries]) == (2, ["a/1", "a/10"])
    for prefix in ("\x00", "\ud83d"):
        assert (await inside(services, texts.page, prefix=prefix)).total == 0


async def _assert_fact(services, dsn, *names):
    context = (await services.contexts.get(T, "kb")).id
    connection = await asyncpg.connect(dsn)
    for name in ("s", "o"):
        await connection.execute(
            "INSERT INTO concept (tenant_id, context_id, name, key) VALUES ($1, $2, $3, $3)", T, context, name
        )
    await connection.execute(
        "INSERT INTO label (tenant_id, context_id, name, key) VALUES ($1, $2, 'l', 'l')", T, context
    )
    await connection.execute(
        "INSERT INTO association (tenant_id, context_id, subject_id, label_id, object_id, weight, count) "
        "SELECT $1, $2, min(concept_id), (SELECT min(label_id) FROM label), max(concept_id), 3, 3 FROM concept",
        T,
        context,
    )
    for name in names:
        await connection.execute(
            "INSERT INTO attribution (tenant_id, context_id, association_id, source, weight, count) "
            "SELECT $1, $2, association_id, $3, 1, 1 FROM association",
            T,
            context,
            name,
        )
    await connection.close()


async def test_twenty_writers_of_one_text_leave_one_of_them_whole(services):
    variants = [
        TextSource("doc", "\n\n".join(f"{word} {n}" for n in range(size)), questions=[(0, word)], tags=[word])
        for word, size in (("apple", 3), ("banana", 5))
    ]
    await asyncio.gather(*(put(services, variants[number % 2]) for number in range(20)))
    texts, _ = await services.sources.texts.lookup(T, "kb", ["doc"])
    winner = next(variant for variant in variants if variant.text == texts["doc"])
    word = winner.tags[0]
    assert [row[0] for row in await rows(services, "SELECT question FROM passage_question")] == [word]
    assert [row[0] for row in await rows(services, "SELECT tags FROM source")] == [[word]]
    assert await search(services, "kb", "apple banana") == ["doc"]
    await check(services)


async def test_a_failure_on_the_way_leaves_the_text_as_it_was(services, monkeypatch):
    await put(services, TextSource("a", "before", questions=[(0, "old")]))

    async def failing(*_):
        raise asyncpg.ConnectionDoesNotExistError("gone")

    with monkeypatch.context() as patch:
        patch.setattr(write_repository, "insert_questions", failing)
        with pytest.raises(StrataError):
            await put(services, TextSource("a", "after", questions=[(0, "new")]))
    assert (await services.sources.texts.lookup(T, "kb", ["a"]))[0] == {"a": "before"}
    assert await search(services, "kb", "before old") == ["a"]
    assert await search(services, "kb", "after new") == []
    await check(services)


async def test_tenants_and_contexts_never_see_each_others_texts(services, dsn):
    tenant = uuid4()
    connection = await asyncpg.connect(dsn)
    await connection.execute("INSERT INTO tenant (tenant_id, name) VALUES ($1, 'other')", tenant)
    await connection.close()
    await put(services, TextSource("a", "mine"))
    await put(services, TextSource("a", "elsewhere"), context="kb2")
    await put(services, TextSource("a", "theirs"), tenant=tenant)
    texts = services.sources.texts
    assert (await texts.lookup(T, "kb", ["a"]))[0] == {"a": "mine"}
    assert (await texts.lookup(tenant, "kb", ["a"]))[0] == {"a": "theirs"}
    with pytest.raises(StrataError) as raised:
        await texts.lookup(tenant, "kb2", ["a"])
    assert raised.value.kind is CONTEXT_NOT_FOUND
    await inside(services, texts.remove, ["a"], tenant=tenant)
    assert (await cite(services, ("a", 0))).found["a", 0] == Cited("mine", passage_id=_passage(await _serial(services)))
    await check(services)


async def _serial(services):
    found = await rows(
        services, "SELECT serial FROM source JOIN context USING (tenant_id, context_id) WHERE context.name = 'kb'"
    )
    return found[0][0]


def _passage(serial):
    return serial << 20


async def test_a_huge_paragraph_is_one_passage(services):
    text = "word " * 300_000
    stored = await put(services, TextSource("big", text))
    assert stored[0].paragraphs == 1
    assert (await cite(services, ("big", 0))).found["big", 0].text == text
    await check(services)
