"""The pure parts of ingest: identities, merged metadata, building, and the numbering of passages."""

from __future__ import annotations

import os
import signal
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strata.errors import INVALID_REQUEST, StrataError
from strata.lanes.lexical.segment import build_segments
from strata.platform.ids import SERIAL_BITS
from strata.settings import load_settings
from strata.sources import workers as workers_module
from strata.sources.build import Loaded, build, build_all, fingerprint, load
from strata.sources.discover import survey
from strata.sources.inputs import input_tasks
from strata.sources.metadata import MAX_METADATA_BYTES, describe, metadata_key, parse_time
from strata.sources.model import Built, DocumentInput, Given, Known, Refused, Same, Task
from strata.sources.paths import MAX_PATH_BYTES, clean_id, clean_path
from strata.sources.store import numbered
from strata.sources.workers import Workers
from strata.text.document import Document
from strata.text.tokenise import Analysis


@pytest.mark.parametrize(
    ("raw", "path"),
    [
        ("a/b.md", "a/b.md"),
        ("/a//b.md/", "a/b.md"),
        ("./a/./../b.md", "b.md"),
        (" a \n b.md ", "a b.md"),
        ("u\x00\ud800x", "ux"),
        ("https://h.example/a//b?c=../d", "https://h.example/a//b?c=../d"),
        ("日本/ファイル.md", "日本/ファイル.md"),
    ],
)
def test_a_path_is_cleaned_to_one_form(raw, path):
    assert clean_path(raw, {}) == path


@pytest.mark.parametrize("raw", ["", " ", "\x00", "..", "a/../..", "../a", ".", "/", "é" * 513])
def test_a_path_that_names_nothing_below_its_root_is_refused(raw):
    with pytest.raises(StrataError) as raised:
        clean_path(raw, {}, "/documents/0/path")
    assert (raised.value.kind, raised.value.pointer) == (INVALID_REQUEST, "/documents/0/path")


@given(st.text(st.characters() | st.sampled_from("/.\\ \x00\ud800:"), max_size=60))
def test_cleaning_a_path_twice_changes_nothing_and_never_climbs(raw):
    try:
        path = clean_path(raw, {})
    except StrataError:
        return
    assert clean_path(path, {}) == path
    assert 0 < len(path.encode()) <= MAX_PATH_BYTES
    if "://" not in path:
        assert not set(path.split("/")) & {"", ".", ".."}


def test_an_id_keeps_its_slashes_and_dots():
    changes = {}
    assert clean_id("a//b/../c\x00", changes) == "a//b/../c"
    assert changes == {"nul": 1}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2024-05-01", "2024-05-01T00:00:00+00:00"),
        ("2024-05-01T10:00:00+02:00", "2024-05-01T08:00:00+00:00"),
        ("2024-05-01 10:00", "2024-05-01T10:00:00+00:00"),
        ("2024/5/1", "2024-05-01T00:00:00+00:00"),
        ("2024", "2024-01-01T00:00:00+00:00"),
        ("2024-05", "2024-05-01T00:00:00+00:00"),
        ("Wed, 01 May 2024 10:00:00 GMT", "2024-05-01T10:00:00+00:00"),
        ("0001-01-01T00:00:00+23:00", None),
        ("2024-13-01", None),
        ("2024-02-30", None),
        ("yesterday", None),
        ("", None),
        ("0", None),
    ],
)
def test_dates_are_read_tolerantly_as_utc(text, expected):
    moment = parse_time(text)
    assert (moment.isoformat() if moment else None) == expected


@given(st.text(max_size=40))
def test_no_text_makes_the_date_reader_fail(text):
    parse_time(text)


def described(metadata=None, given_=None, **document):
    made = Document(text=document.pop("text", "words of a text"), blocks=(), metadata=metadata or {}, **document)
    return describe("dir/file-name.md", made, given_ or Given())


def test_a_document_without_a_title_is_named_by_its_file():
    assert described().title == "file-name"
    assert described(title="Own").title == "Own"
    assert described(title="Own", given_=Given(title="Given")).title == "Given"
    assert describe("plain-id", Document(text="x", blocks=()), Given()).title == ""


@pytest.mark.parametrize(
    ("metadata", "tags"),
    [
        ({"tags": ["a", "b", "a", "", None]}, ("a", "b")),
        ({"tags": "a, b;c"}, ("a", "b", "c")),
        ({"tags": 2024}, ("2024",)),
        ({"tags": {"no": 1}}, ()),
        ({"tags": [["nested"], "x" * 200, "ok"]}, ("ok",)),
    ],
)
def test_tags_are_read_from_lists_and_lines(metadata, tags):
    assert described(metadata).tags == tags


def test_fields_that_cannot_be_read_are_left_out_with_a_warning():
    result = described({"category": {"x": 1}, "language": "not a language", "date": "soon", "tags": [{}]})
    assert (result.category, result.occurred_at, result.tags) == (None, None, ())
    assert len(result.warnings) == 4


def test_metadata_that_is_too_large_is_cut_and_what_was_given_stays():
    result = described({"big": "x" * MAX_METADATA_BYTES, "small": 1}, Given(metadata={"mine": True}))
    assert result.metadata == {"small": 1, "mine": True}
    assert len(result.warnings) == 1


def test_an_explicit_key_wins_over_that_of_the_document():
    assert described({"source_key": "own"}).source_key == "own"
    assert described({"source_key": "own"}, Given(source_key="given")).source_key == "given"
    assert described({"source_key": ["no"]}).source_key is None


def test_the_metadata_key_depends_on_the_identity_fields_alone():
    key = metadata_key({"doi": "10.1/x", "title": "a"})
    assert key == metadata_key({"title": "b", "doi": " 10.1/x "})
    assert key != metadata_key({"doi": "10.1/y"})
    assert len(key) == len("meta:") + 16
    assert metadata_key({"title": "a", "doi": "", "url": ["x"]}) is None


def tasks(*documents):
    refused = []
    return list(input_tasks(documents, "", refused.append)), refused


@pytest.mark.parametrize(
    ("more", "pointer"),
    [
        ({"metadata": {"x": "y" * MAX_METADATA_BYTES}}, "/documents/0/metadata"),
        ({"title": "x" * 501}, "/documents/0/title"),
        ({"tags": ("x",) * 101}, "/documents/0/tags"),
        ({"tags": ("ok", "x" * 129)}, "/documents/0/tags/1"),
        ({"language": "??"}, "/documents/0/language"),
        ({"occurred_at": "never"}, "/documents/0/occurredAt"),
    ],
)
def test_given_fields_that_cannot_be_meant_are_refused_where_they_stand(more, pointer):
    made, refused = tasks(DocumentInput(path="a.md", content="x", **more))
    assert made == []
    assert [(entry.pointer, entry.code) for entry in refused] == [(pointer, "invalid_request")]


def test_what_is_given_is_part_of_the_fingerprint():
    base = Given(title="t", metadata={"a": 1, "b": 2})
    assert fingerprint(base) == fingerprint(Given(title="t", metadata={"b": 2, "a": 1}))
    for other in (
        Given(),
        replace(base, category="c"),
        replace(base, metadata={"a": 1}),
        replace(base, media_type="m"),
    ):
        assert fingerprint(other) != fingerprint(base)


def test_known_bytes_are_the_same_and_others_are_loaded():
    task = Task(path="a.md", size=1, data=b"x")
    first = load(task, 100)
    assert isinstance(first, Loaded)
    known = Known(None, 1, 1, "", first.content_sha256, first.fingerprint)
    assert isinstance(load(replace(task, known=known), 100), Same)
    assert isinstance(load(replace(task, known=known, data=b"y"), 100), Loaded)


def test_a_file_that_is_gone_or_too_large_is_refused(tmp_path):
    gone = load(Task(path="a.md", size=1, file=str(tmp_path / "a.md")), 100)
    assert (gone.reason, gone.stage) == ("unreadable", "read")
    assert str(tmp_path) not in gone.detail
    (tmp_path / "a.md").write_bytes(b"x" * 101)
    grown = load(Task(path="a.md", size=1, file=str(tmp_path / "a.md")), 100)
    assert grown.reason == "too_large"
    assert load(Task(path="a.md", size=101, data=b"x" * 101), 100).reason == "too_large"


@given(st.text(min_size=1, max_size=300))
def test_no_text_makes_building_fail(text):
    loaded = load(Task(path="a.md", size=1, data=text.encode("utf-8", "surrogatepass")), 10_000)
    outcome = build(loaded) if isinstance(loaded, Loaded) else loaded
    if isinstance(outcome, Refused):
        assert outcome.code == "source_refused"
        return
    source, analyses = outcome
    assert isinstance(source, Built)
    assert len(analyses) == len(source.passages) == len(source.passage_sha256)
    for passage in source.passages:
        assert source.content[passage.start_byte : passage.end_byte].decode() == passage.text


@given(
    st.lists(st.integers(0, 4), min_size=1, max_size=6),
    st.sets(st.integers(0, 5)),
    st.integers(1, 1000),
)
def test_numbering_gives_the_same_index_as_building_with_the_ids(sizes, chosen, first):
    analyses = {
        (place, ordinal): Analysis({f"t{place}": 1, f"o{ordinal}": 2, "all": 1}, 4)
        for place, size in enumerate(sizes)
        for ordinal in range(size)
    }
    serials = {place: first + 3 * rank for rank, place in enumerate(sorted(chosen & set(range(len(sizes)))))}
    if not serials:
        return
    segments = build_segments([(place << SERIAL_BITS | ordinal, one) for (place, ordinal), one in analyses.items()])
    expected = build_segments(
        [
            (serials[place] << SERIAL_BITS | ordinal, one)
            for (place, ordinal), one in analyses.items()
            if place in serials
        ]
    )
    got = list(numbered(segments, serials))
    assert [segment.passage_ids.tolist() for segment in got] == [segment.passage_ids.tolist() for segment in expected]
    assert [list(segment.rows()) for segment in got] == [list(segment.rows()) for segment in expected]
    assert [segment.lengths.tolist() for segment in got] == [segment.lengths.tolist() for segment in expected]


def test_a_folder_is_surveyed_the_same_way_every_time(tmp_path):
    for name in ("z.md", "a.md", "b/c.md", "b/.x.md", ".h/y.md", "b/d/e.txt", "n.weird", "Z.MD"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    result = survey([tmp_path])
    assert [entry.path for entry in result.found] == ["Z.MD", "a.md", "z.md", "b/c.md", "b/d/e.txt"]
    assert (result.skipped, result.refused, result.prunable) == ({".weird": 1}, [], [str(tmp_path)])


@pytest.mark.parametrize("target", ["missing", "away"])
def test_a_root_with_a_link_that_leads_nowhere_is_not_walked_whole(tmp_path, target):
    root = tmp_path / "root"
    root.mkdir()
    (root / "a.md").write_text("x")
    (root / "away").symlink_to(root / target)
    result = survey([root])
    assert [entry.path for entry in result.found] == ["a.md"]
    assert (result.skipped, result.prunable) == ({"broken link": 1}, [])


def _kill_on_poison(batch):
    if any(item.task.path == "poison.md" for item in batch):
        os.kill(os.getpid(), signal.SIGKILL)
    return build_all(batch)


async def test_a_document_that_kills_its_process_is_refused_and_the_others_are_built(monkeypatch, tmp_path):
    monkeypatch.setattr(workers_module, "build_all", _kill_on_poison)
    names = ["a.md", "poison.md", "b.md"]
    loaded = [load(Task(path=name, size=1, data=b"text of " + name.encode()), 100) for name in names]
    workers = Workers(load_settings({}, home=str(tmp_path)))
    batch = await workers.build(loaded, 2)
    assert [source.path for source in batch.built] == ["a.md", "b.md"]
    assert [(refused.path, refused.reason, refused.stage) for refused in batch.refused] == [
        ("poison.md", "crashed", "build")
    ]
    healthy = await workers.build([loaded[0]], 2)
    assert [source.path for source in healthy.built] == ["a.md"]
    await workers.close()
