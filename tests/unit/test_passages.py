import time
from itertools import pairwise

from hypothesis import example, given
from hypothesis import strategies as st

from strata.sources.readers import beir_document, iter_beir, read_document
from strata.text.document import Block, Document
from strata.text.paragraphs import text_weight
from strata.text.passages import MAX_WEIGHT, TARGET_WEIGHT, build_passages
from strata.text.sections import build_sections

SENTENCE = "The quick brown fox jumps over the lazy dog by the river bank. "


def passages_of(document, **sizes):
    return build_passages(document, build_sections(document), **sizes)


def read(text, name="a.md"):
    return read_document(name, text.encode())


def check(document, passages):
    """Hold the invariants that every document's passages obey."""
    raw = document.text.encode()
    previous = 0
    for number, passage in enumerate(passages):
        assert passage.ordinal == number
        assert previous <= passage.start_byte < passage.end_byte
        assert raw[passage.start_byte : passage.end_byte] == passage.text.encode()
        assert passage.text.rstrip() == passage.text
        assert passage.text.lstrip() == passage.text or passage.kind in {"code", "list", "mixed"}
        previous = passage.end_byte
    covered = bytearray(len(raw))
    for passage in passages:
        covered[passage.start_byte : passage.end_byte] = b"\x01" * (passage.end_byte - passage.start_byte)
    starts = [0]
    for char in document.text:
        starts.append(starts[-1] + len(char.encode()))
    for block in document.blocks:
        for offset in range(block.start, block.end):
            if not document.text[offset].isspace():
                assert covered[starts[offset]]
    sections = build_sections(document)
    for passage in passages:
        section = sections[passage.section]
        following = sections[passage.section + 1].start_byte if passage.section + 1 < len(sections) else len(raw)
        assert passage.end_byte <= following
        if passage.start_byte < section.start_byte:
            opened = [upper for upper in sections if passage.start_byte <= upper.start_byte <= section.start_byte]
            assert all(lower.level > upper.level for upper, lower in pairwise(opened))


WORDS = st.sampled_from(
    [
        "word",
        "Größe.",
        "首都。",
        "東京都は",
        "e\u0301\u0301",
        "👩‍👩‍👧",
        "x" * 70,
        "שלום",
        "\u202e",
        "#",
        "- a",
        "|",
        "`",
    ]
)
LINES = st.lists(WORDS, min_size=1, max_size=12).map(" ".join)
MARKDOWN = st.lists(
    st.one_of(
        LINES,
        LINES.map(lambda line: f"# {line}"),
        LINES.map(lambda line: f"### {line}"),
        LINES.map(lambda line: f"```\n{line}\n# no\n```"),
        LINES.map(lambda line: f"| a | b |\n|---|---|\n| {line} | x |"),
        LINES.map(lambda line: f"- {line}\n- {line}"),
        st.just("<!-- # hidden -->"),
        st.just("---"),
    ),
    min_size=1,
    max_size=25,
).map(lambda parts: "\n\n".join(["begin", *parts]))


@given(MARKDOWN, st.integers(1, 60), st.integers(60, 200))
@example("# A\n\n## B\n\n### C\n\ntext", 10, 60)
def test_passages_cover_every_block_in_order_and_stay_in_their_section(text, target, maximum):
    document = read(text)
    passages = passages_of(document, target_weight=target, max_weight=maximum)
    check(document, passages)
    assert passages == passages_of(document, target_weight=target, max_weight=maximum)


@given(st.text(max_size=400), st.integers(1, 40))
def test_any_paragraph_is_split_within_the_limit(text, limit):
    document = Document(text, [Block("paragraph", 0, len(text))])
    passages = passages_of(document, target_weight=limit, max_weight=limit)
    check_text = "".join("".join(passage.text.split()) for passage in passages)
    assert check_text == "".join(text.split())
    assert all(text_weight(passage.text) <= max(limit, 3) for passage in passages)


def test_a_short_section_stays_whole():
    abstract = SENTENCE * 28
    assert 1_700 < len(abstract) < MAX_WEIGHT
    assert len(passages_of(read(abstract))) == 1


def test_a_beir_abstract_with_its_title_is_one_passage():
    line = '{"_id": "7", "title": "On foxes", "text": "%s", "metadata": {}}' % (SENTENCE * 28)
    record = next(iter_beir(line.encode(), []))
    (passage,) = passages_of(beir_document(record))
    assert passage.text.startswith("On foxes\n\nThe quick")
    assert passage.kind == "paragraph"


def test_a_long_section_is_packed_toward_the_target():
    document = read("# Foxes\n\n" + "\n\n".join([SENTENCE * 4] * 40))
    passages = passages_of(document)
    check(document, passages)
    assert passages[0].text.startswith("# Foxes\n\nThe quick")
    assert all(TARGET_WEIGHT * 0.7 < len(passage.text) <= MAX_WEIGHT for passage in passages)


def test_a_heading_goes_with_the_text_below_it():
    document = read("# Guide\n\n## Install\n\nRun it.\n\n## Empty\n\n## Use\n\nUse it.")
    assert [passage.text for passage in passages_of(document)] == [
        "# Guide\n\n## Install\n\nRun it.",
        "## Empty",
        "## Use\n\nUse it.",
    ]
    assert [passage.section for passage in passages_of(document)] == [2, 3, 4]


def test_a_table_that_fits_is_never_cut_and_a_larger_one_is_cut_at_rows():
    row = "| " + "x" * 60 + " | y |\n"
    small = "| a | b |\n|---|---|\n" + row * 30
    document = read(SENTENCE * 20 + "\n\n" + small)
    passages = passages_of(document)
    assert any(small.strip() in passage.text for passage in passages)
    large = read("| a | b |\n|---|---|\n" + row * 300)
    assert all(passage.text.endswith("|") and passage.text.startswith("|") for passage in passages_of(large))


def test_code_and_lists_keep_their_indent_where_they_are_cut():
    code = "```py\ndef f():\n" + "    return 1  # and a long comment here\n" * 200 + "```"
    assert all(passage.text.startswith("    return") for passage in passages_of(read(code))[1:])
    items = "- top\n" + "  - nested item with some words in it\n" * 200
    assert all(passage.text.startswith("  - nested") for passage in passages_of(read(items))[1:])


def test_one_huge_paragraph_is_cut_at_sentence_ends():
    latin = passages_of(read(SENTENCE * 200))
    assert all(passage.text.endswith(".") for passage in latin)
    cjk = passages_of(read("東京都は日本の首都であり、人口は多い。「本当だ。」と言った。" * 200))
    assert all(passage.text.endswith(("。", "」と言った。", "」")) for passage in cjk)


def test_cjk_passages_are_shorter_in_characters():
    cjk = passages_of(read("東京都は日本の首都である。" * 500))
    assert max(len(passage.text) for passage in cjk) <= TARGET_WEIGHT / 2.9


def test_a_cut_never_parts_a_mark_from_its_base():
    for cluster in ("e\u0301", "👍🏽", "👩\u200d👩\u200d👧", "क्षि"):
        document = read(cluster * 2_000, "a.txt")
        for passage in passages_of(document)[1:]:
            assert passage.text[0] == cluster[0]


def test_pages_are_not_mixed_and_named():
    text = "one\n\ntwo\n\nthree"
    blocks = [Block("paragraph", 0, 3, page=3), Block("paragraph", 5, 8, page=17), Block("paragraph", 10, 15, page=17)]
    assert [(passage.page, passage.text) for passage in passages_of(Document(text, blocks))] == [
        (3, "one"),
        (17, "two\n\nthree"),
    ]


def test_cues_give_their_interval_and_a_speaker_when_one_speaks():
    lines = [f"Ann: line {number} of a talk that goes on for a while" for number in range(100)]
    text, blocks, position = "\n".join(lines), [], 0
    for number, line in enumerate(lines):
        speaker = "Ann" if number < 60 else "Bob"
        interval = {"start_ms": number * 1000, "end_ms": number * 1000 + 900}
        blocks.append(Block("cue", position, position + len(line), speaker=speaker, **interval))
        position += len(line) + 1
    passages = passages_of(Document(text, blocks))
    assert len(passages) > 2
    assert passages[0].start_ms == 0
    assert passages[0].speaker == "Ann"
    assert passages[-1].end_ms == 99_900
    assert any(passage.speaker is None for passage in passages)
    assert all(passage.kind == "cue" for passage in passages)


def test_an_empty_document_has_no_passages():
    assert passages_of(Document("", [])) == []


def test_long_and_broken_texts_take_linear_time():
    started = time.monotonic()
    for text in (
        "word " * 400_000,
        "." * 1_000_000,
        "x" * 1_000_000,
        "東京" * 300_000,
        "a\n\n" * 60_000,
        "e" + "\u0301" * 500_000,
    ):
        document = read_document("a.txt", text.encode())
        assert "".join(passage.text for passage in passages_of(document)).strip()
    document = read("```\n" + "word " * 400_000 + "\n```")
    assert len(passages_of(document)) > 1_000
    assert time.monotonic() - started < 30
