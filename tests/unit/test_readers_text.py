"""Markdown, plain text, delimited files, JSON lines and recordings."""

import json
from pathlib import Path

import pytest

from strata.errors import StrataError
from strata.sources.readers import beir_document, detect_format, is_beir, iter_beir, read_document
from strata.text.sections import build_sections

DATA = Path(__file__).parents[1] / "data" / "readers"


def read(name):
    return read_document(name, (DATA / name).read_bytes())


def md(text):
    return read_document("a.md", text if isinstance(text, bytes) else text.encode())


def shown(document):
    return [(block.kind, document.text[block.start : block.end]) for block in document.blocks]


def reason_of(name, data, media_type=None):
    with pytest.raises(StrataError) as caught:
        read_document(name, data, media_type)
    assert caught.value.code == "source_refused"
    return caught.value.extra["reason"]


def test_markdown_blocks_are_ranges_of_the_text_as_written():
    document = md(
        "# T *it* `c` &amp; [l](u)\n\npara\nmore\n\n- a\n- b\n\n> q\n\n"
        "```py\n# no\n```\n\n    code\n\n| a |\n|---|\n| b |\n"
    )
    assert shown(document) == [
        ("heading", "# T *it* `c` &amp; [l](u)"),
        ("paragraph", "para\nmore"),
        ("list", "- a\n- b"),
        ("quote", "> q"),
        ("code", "```py\n# no\n```"),
        ("code", "    code"),
        ("table", "| a |\n|---|\n| b |"),
    ]
    assert document.blocks[0].heading == "T it c & l"
    assert document.title == "T it c & l"


def test_markdown_link_definitions_are_not_lost():
    assert shown(md("text [a]\n\n[a]: https://example.org 'Title'\n\nend"))[1] == (
        "paragraph",
        "[a]: https://example.org 'Title'",
    )


def test_setext_headings_and_declared_anchors():
    document = md('One\n===\n\nTwo {#second}\n---\n\n## <a name="third"></a>Three\n\n## Four {#4th .class}\n')
    headings = [(block.level, block.heading, block.anchor) for block in document.blocks]
    assert headings == [(1, "One", None), (2, "Two", "second"), (2, "Three", "third"), (2, "Four", "4th")]


def test_comments_and_rules_are_in_no_block():
    assert shown(md("a\n\n<!-- # secret\n\nmore -->\n\n---\n\nb")) == [("paragraph", "a"), ("paragraph", "b")]


def test_yaml_front_matter_becomes_metadata_and_leaves_the_text():
    document = md(
        "---\ntitle: Guide\ntags: [a, b]\ndate: 2024-05-06\nlanguage: no\nsource_key: kb/1\n---\n\n# Head\n\nText\n"
    )
    assert document.text == "# Head\n\nText\n"
    assert document.title == "Guide"
    assert document.language == "no"
    assert document.metadata["date"] == "2024-05-06"
    assert document.metadata["tags"] == ["a", "b"]
    assert document.metadata["source_key"] == "kb/1"
    json.dumps(document.metadata, allow_nan=False)


def test_toml_front_matter_is_read():
    document = md("+++\ntitle = 'T'\naliases = ['x']\ndate = 2024-01-02T03:04:05Z\n+++\nBody")
    assert (document.title, document.metadata["aliases"], document.text) == ("T", ["x"], "Body")


def test_crlf_and_a_mark_do_not_hide_front_matter():
    document = md(b"\xef\xbb\xbf---\r\ntitle: T\r\n---\r\nBody\r\n")
    assert (document.title, document.text) == ("T", "Body\n")
    assert document.changes == {"bom": 1, "carriage_returns": 4}


def test_malformed_front_matter_is_a_warning_and_stays_text():
    document = md("---\ntitle: [unclosed\n---\n\nBody")
    assert "read as text" in document.warnings[0]
    assert "unclosed" in document.text


def test_a_rule_at_the_top_is_no_front_matter():
    document = md("---\n\nSome text\n\n---\n\nMore")
    assert document.metadata == {}
    assert document.warnings == ()
    assert "Some text" in document.text


@pytest.mark.parametrize(
    "head",
    [
        "a: &a [x, x, x, x, x, x, x, x, x]\n"
        + "".join(f"{chr(98 + n)}: &{chr(98 + n)} [{', '.join(['*' + chr(97 + n)] * 9)}]\n" for n in range(9)),
        "a: &a {x: 1}\nb: {<<: [*a, *a]}\n",
        "deep: " + "[" * 3000 + "]" * 3000 + "\n",
        "date: 2024-13-45\n",
        "? {a: b}\n: c\n",
        "!!python/object/apply:os.system ['true']\n",
    ],
)
def test_hostile_front_matter_harms_nothing(head):
    document = md(f"---\n{head}---\n\nBody")
    assert document.text.endswith("Body")
    assert len(json.dumps(document.metadata)) < 2_000_000


def test_nul_and_surrogates_in_metadata_are_cleaned_and_counted():
    document = md('---\ntitle: "speci\\0fic"\n"k\\0ey": v\n---\nBody')
    assert document.title == "specific"
    assert document.metadata["key"] == "v"
    assert document.changes["nul"] >= 2


def test_the_sample_of_all_markdown_blocks():
    document = read("docling_blocks.md")
    headings = [(block.level, block.heading) for block in document.blocks if block.kind == "heading"]
    assert headings == [(1, "my heading"), (1, "my setext heading level 1"), (2, "my setext heading level 2")]
    assert ("code", '    print("Hi!")') in shown(document)


def test_deeply_nested_markdown_is_read():
    for text in (">" * 50_000 + "x", "- " * 20_000 + "x", "# " + "[" * 20_000, "# " + "*a " * 20_000):
        assert md(text).blocks


def test_plain_text_is_paragraphs_between_blank_lines():
    document = read_document("notes.unknown", b"one\ntwo\n \n\n  three\n\n\n")
    assert shown(document) == [("paragraph", "one\ntwo"), ("paragraph", "  three")]
    assert document.text == "one\ntwo\n \n\n  three\n\n\n"


def test_csv_rows_name_their_columns():
    document = read("docling_csv-semicolon.csv")
    first = document.text.split("\n")[0]
    assert first.startswith("Index: 1 | Customer Id: DD37Cf93aecA6Dc | First Name: Sheryl | Last Name: Baxter")
    assert document.metadata["delimiter"] == ";"
    assert read("docling_csv-pipe.csv").metadata["delimiter"] == "|"


def test_shift_jis_csv_is_read():
    document = read("markitdown_test_mskanji.csv")
    assert document.text.split("\n")[0] == "名前: 佐藤太郎 | 年齢: 30 | 住所: 東京"


def test_ragged_rows_are_kept_and_reported():
    document = read("docling_csv-too-many-columns.csv")
    assert document.text.split("\n") == [
        "1 | 2 | 3 | 4",
        "a | b | c | d",
        "a | b | c | d | e",
        "a | b | c | d",
        "a | b | c | d",
    ]
    assert document.warnings == ("1 of 5 rows do not have the 4 cells of the header.",)


def test_a_wrapped_cjk_cell_is_joined_without_a_space_and_words_with_one():
    document = read_document("a.csv", '名称,"持股比\n例"\n甲,"a\nb"\n'.encode())
    assert document.text == "名称: 甲 | 持股比例: a b"


def test_tabs_and_odd_csv():
    assert read_document("a.tsv", b"a\tb\n1\t2, 3\n").text == "a: 1 | b: 2, 3"
    assert read_document("a.csv", b"only,header\n").text == "only | header"
    assert read_document("a.csv", b"one column\nx\ny\n").text == "one column: x\none column: y"
    assert 'a: he said "no"' in read_document("a.csv", b'a,b\n"he said ""no""",2\n').text
    assert reason_of("a.csv", b",,,\n,,\n") == "no_text"


def test_beir_records_stream_with_numbered_problems():
    lines = [
        b'{"_id": "a", "title": "T", "text": "x", "metadata": {"k": "v"}, "source": "s"}',
        b"",
        b"not json",
        b'{"_id": "", "text": "x"}',
        b'{"title": "no id"}',
        b'{"_id": "e", "title": "", "text": " "}',
        b'["_id"]',
        b'{"_id": 7, "text": "speci\\u0000fic \\udbff \\ud835\\udc00"}',
    ]
    problems = []
    records = list(iter_beir(b"\n".join(lines), problems))
    assert [(record.id, record.line) for record in records] == [("a", 1), ("7", 8)]
    assert records[0].metadata == {"source": "s", "k": "v"}
    assert records[1].text == "specific  \U0001d400"
    assert records[1].changes == {"nul": 1, "lone_surrogates": 1}
    assert [problem.line for problem in problems] == [3, 4, 5, 6, 7]
    assert "not json" not in problems[0].detail


def test_beir_is_read_from_a_path_and_recognised(tmp_path):
    path = tmp_path / "corpus.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"_id": "1", "title": "T", "text": "A\\n\\nB", "metadata": {}}\n')
    assert is_beir(path.read_bytes())
    assert is_beir(path.read_bytes()[:40])
    assert not is_beir(b'{"a": 1}\n')
    (record,) = iter_beir(path, [])
    document = beir_document(record)
    assert shown(document) == [("heading", "T"), ("paragraph", "A"), ("paragraph", "B")]
    assert document.title == "T"


def test_other_json_lines_become_records_of_one_document():
    document = read_document("a.jsonl", b'{"q": "why?", "n": 3, "none": null}\nbroken\n"text"\n')
    assert document.text == "q: why? | n: 3\n\ntext"
    assert document.warnings == ("1 lines are not JSON and were left out.",)
    assert reason_of("a.jsonl", b"{broken\n") == "malformed"


def cues(document):
    return [
        (block.start_ms, block.end_ms, block.speaker, document.text[block.start : block.end])
        for block in document.blocks
    ]


def test_voices_are_speakers_and_tags_go():
    assert cues(read("docling_webvtt_example_02.vtt")) == [
        (0, 2000, "Esme", "Esme: It’s a blue apple tree!"),
        (2000, 4000, "Mary", "Mary: No way!"),
        (4000, 6000, "Esme", "Esme: Hee! laughter"),
        (6000, 8000, "Mary", "Mary: That’s awesome!"),
        (8000, 10000, None, "Sur les playground, ici à Montpellier"),
    ]


def test_stamps_without_padding_are_read():
    assert cues(read("webvttpy_non_padded_timestamps.vtt")) == [
        (0, 3540, "Jane Doe", "Jane Doe: Good morning everyone."),
        (3540, 7230, "John Smith", "John Smith: Morning, let's get started."),
        (65_200, 3_727_950, "Jane Doe", "Jane Doe: Thanks for joining."),
    ]


def test_notes_and_styles_are_skipped_and_a_mark_does_no_harm():
    assert [text for *_, text in cues(read("webvttpy_styles_with_comments.vtt"))] == ["- Hello world."]
    document = read("webvttpy_captions_with_bom.vtt")
    assert document.changes["bom"] == 1
    assert document.warnings == ()


def test_broken_cues_are_left_out_and_counted():
    document = read("webvttpy_invalid_timeframe.vtt")
    assert len(document.blocks) == 6
    assert document.warnings == ("1 cues without text or with a broken interval were left out.",)
    assert "Caption text #2" not in document.text
    assert len(read("webvttpy_missing_timeframe.srt").blocks) == 4


def test_scrolling_captions_do_not_repeat_themselves():
    assert cues(read("webvttpy_youtube_dl.vtt")) == [
        (286_070, 286_470, None, "yeah"),
        (286_470, 304_080, None, "what"),
        (304_080, 305_400, None, "this will happen is I'm telling"),
    ]
    assert read("webvttpy_youtube_dl.vtt").language == "en"


def test_subrip_with_colours_and_entities():
    document = read("webvttpy_styles_colours.srt")
    assert cues(document)[2][3] == "Some italic and normal coloured text. By the way, 2 < 3 !"


def test_a_name_before_a_colon_is_the_speaker_where_it_is_a_habit():
    def srt(*lines):
        text = "\n\n".join(f"{n}\n00:00:0{n},000 --> 00:00:0{n},900\n{line}" for n, line in enumerate(lines, 1))
        return [speaker for _, _, speaker, _ in cues(read_document("a.srt", text.encode()))]

    assert srt("Ann: hello", "Bob: hi", "and more") == ["Ann", "Bob", None]
    assert srt("Note: this", "is one", "of many", "lines") == [None] * 4


def test_recordings_without_cues_are_refused():
    assert reason_of("a.vtt", (DATA / "webvttpy_no_captions.vtt").read_bytes()) == "empty"
    assert reason_of("a.srt", (DATA / "webvttpy_invalid_format3.srt").read_bytes()) == "malformed"
    assert reason_of("a.vtt", b"WEBVTT\n\n00:05.000 --> 00:01.000\nbackwards\n") == "malformed"


def test_refusals_have_stable_reasons():
    assert reason_of("a.md", b"") == "empty"
    assert reason_of("a.md", b" \n\t\n") == "empty"
    assert reason_of("a.md", b"\x00\x00\x00") in {"empty", "binary"}
    assert reason_of("a.md", b"---\ntitle: x\n---\n") == "no_text"
    assert reason_of("a.md", b"<!-- only a comment -->") == "no_text"
    assert reason_of("a.txt", bytes(range(256)) * 20) == "binary"
    assert reason_of("a.unknown", b"\x89PNG\r\n\x1a\n" + b"\x00" * 50) == "binary"
    assert reason_of("docling_eml_simple.eml", (DATA / "docling_eml_simple.eml").read_bytes()) == "unsupported_format"
    for name in ("a.pptx", "a.xlsx", "a.epub", "a.doc", "a.zip", "a.png"):
        assert reason_of(name, b"PK\x03\x04 something") == "unsupported_format"


def test_formats_are_told_by_name_then_type_then_bytes():
    assert detect_format("A.MD", b"x") == "markdown"
    assert detect_format("upload", b"x", "text/html; charset=utf-8") == "html"
    assert detect_format("upload", b"  <!DOCTYPE html><p>x") == "html"
    assert detect_format("report.txt", b"%PDF-1.7 ...") == "pdf"
    assert detect_format("talk", b"WEBVTT\n") == "vtt"
    assert detect_format("notes", b"just words") == "text"
    assert detect_format("wide.txt", "wide words in utf-16".encode("utf-16")) == "text"


def test_a_media_type_names_the_charset():
    assert read_document("a.txt", "привет, мир".encode("koi8-r"), "text/plain; charset=koi8-r").text == "привет, мир"


def test_a_long_heading_does_not_swell_the_breadcrumbs():
    document = md("# " + "word " * 5_000 + "\n\ntext")
    assert len(build_sections(document)[1].heading) <= 500
