import time
from pathlib import Path

import pytest

from strata.errors import StrataError
from strata.sources.readers import read_document
from strata.text.sections import build_sections

DATA = Path(__file__).parents[1] / "data" / "readers"


def read(name):
    return read_document(name, (DATA / name).read_bytes())


def html(text):
    return read_document("a.html", text if isinstance(text, bytes) else text.encode())


def shown(document, *kinds):
    return [document.text[block.start : block.end] for block in document.blocks if not kinds or block.kind in kinds]


def test_the_main_text_stays_and_the_furniture_goes():
    document = html(
        "<html lang=de><head><title>T - Site</title><meta name=description content='D'><style>p{}</style></head><body>"
        "<nav>menu</nav><header>banner</header><aside>side</aside><div hidden>h</div><p style='display: none'>h</p>"
        "<main><h1>T</h1><p>Text <b>bo</b>ld&nbsp;x.<script>s()</script><noscript>n</noscript></p>"
        "<article><header>By A</header><aside>Note</aside></article></main><footer>foot</footer></body>"
    )
    assert shown(document) == ["T", "Text bold x.", "By A", "Note"]
    assert (document.title, document.language) == ("T", "de")
    assert document.metadata["description"] == "D"


def test_menus_made_of_links_go_and_menus_made_of_words_stay():
    document = html(
        "<div class='menu main'><ul><li><a href=/>Home</a><li><a href=/d>Docs</a></ul></div>"
        "<div class=menu><p>Soup of the day, bread and <a href=/b>butter</a></p></div><div class=toc><a>1. X</a></div>"
    )
    assert shown(document) == ["Soup of the day, bread and butter"]


def test_an_id_belongs_to_the_heading_that_opens_its_element_only():
    document = html("<div id=search><form></form></div><div id=intro><h2>Intro</h2></div>")
    assert document.blocks[0].anchor == "intro"
    assert html("<div id=search></div><h2>Intro</h2>").blocks[0].anchor is None


def test_a_page_of_furniture_alone_is_read_whole():
    assert shown(html("<nav>Only <a>links</a></nav><footer>here</footer>")) == ["Only links", "here"]


def test_a_small_main_does_not_hide_the_page():
    document = html("<main>x</main><p>" + "The real text. " * 20 + "</p>")
    assert "The real text." in document.text


def test_ids_are_anchors_of_headings():
    document = html(
        "<h1 id=one>One<a class=headerlink>¶</a></h1><section id=two><h2>Two</h2><p>x</p></section>"
        "<h2><a name=three></a>Three</h2><h2>Four</h2>"
    )
    sections = build_sections(document)[1:]
    assert [(section.heading, section.anchor) for section in sections] == [
        ("One", "one"),
        ("Two", "two"),
        ("Three", "three"),
        ("Four", "four"),
    ]


def test_lists_nest_and_count():
    document = html("<ul><li>a<ol start=3><li>b</li><li>c<p>d</p></li></ol></li><li>e</li></ul>")
    assert shown(document, "list") == ["- a\n  3. b\n  4. c\n    d\n- e"]


def test_code_keeps_its_space_and_paragraphs_lose_theirs():
    document = html("<p>a\n   b<br>c</p><pre>\n  x = 1\n\n  y</pre><blockquote><p>q</p></blockquote>")
    assert shown(document, "paragraph") == ["a b\nc"]
    assert shown(document, "code") == ["  x = 1\n\n  y"]
    assert shown(document, "quote") == ["q"]


def test_hard_spaces_in_cells_are_spaces():
    assert shown(html("<table><tr><th>Chapter\u00a01.\u00a0x<td>y</table>"), "table") == ["Chapter 1. x | y"]


def test_lines_of_cjk_text_join_without_a_space():
    assert shown(html("<p>东京都是\n日本的首都 and\nmore</p>")) == ["东京都是日本的首都 and more"]


def test_golden_table_with_a_wrapped_cjk_cell():
    document = html("<table><tr><th>股东</th><th>持股比\n例</th></tr><tr><td>甲<br>公司</td><td>51%</td></tr></table>")
    assert shown(document, "table") == ["股东 | 持股比例\n甲公司 | 51%"]


def test_golden_table_with_row_and_column_spans():
    document = html(
        "<table><caption>Cap</caption><tr><th rowspan=2>Region<th colspan=2>Sales</tr><tr><th>2023<th>2024</tr>"
        "<tr><td rowspan=0>North<td>1<td>2</tr><tr><td>3<td>4</tr></table>"
    )
    assert shown(document, "table") == [
        "Cap\nRegion | Sales\nRegion | 2023 | 2024\nNorth | 1 | 2\nNorth | 3 | 4",
    ]


def test_golden_pivot_table():
    assert shown(read("docling_example_08.html"), "table")[1].split("\n")[:5] == [
        "Year | Quarter | Month | Revenue | Cost",
        "2025 | Q1",
        "2025 | Q1 | January | $134 | $162",
        "2025 | Q1 | February | $150 | $155",
        "2025 | Q1 | March | $160 | $143",
    ]


def test_tables_that_lay_out_the_page_are_read_cell_by_cell():
    assert shown(read("docling_table_05.html")) == [
        "Header",
        "This is the first paragraph.",
        "A",
        "B",
        "A1 | B1 | C1\nD1 | E1 | F1",
        "2...",
        "After table",
    ]


def test_rich_cells_of_a_data_table_stay_in_their_row():
    tables = shown(read("docling_html_rich_table_cells.html"), "table")
    assert "Teal | Pond Marsh Riverbank | Fly south in winter Build nest on ground" in tables[0]


def test_a_declared_charset_is_honoured():
    assert "привет" in html("<meta charset=windows-1251><p>привет всем".encode("cp1251")).text
    assert "café" in html("<meta charset=iso-8859-1><p>café".encode()).text


def test_readings_of_ruby_do_not_part_words():
    assert shown(html("<p><ruby>漢<rp>(</rp><rt>かん</rt><rp>)</rp>字<rt>じ</rt></ruby>です</p>")) == ["漢字です"]


def test_deep_and_broken_markup_is_read():
    started = time.monotonic()
    for text in (
        "<div>" * 20_000 + "deep",
        "<b>" * 20_000 + "deep",
        "<ul><li>" * 3_000 + "deep",
        "<table><tr><td>" * 2_000 + "deep",
        "<table>" + "<tr><td rowspan=60000 colspan=60000>deep" * 50 + "</table>",
        "<blockquote>" * 5_000 + "deep",
        "<div class=menu>" * 5_000 + "deep",
        "<p>deep <!-- unclosed",
        "<p>deep</p></div></body></html><p>after",
    ):
        assert "deep" in html(text).text
    assert time.monotonic() - started < 60


@pytest.mark.parametrize("text", ["<html><body></body></html>", "<script>x()</script>", "<p> \u00a0 </p>"])
def test_a_page_without_text_is_refused(text):
    with pytest.raises(StrataError) as caught:
        html(text)
    assert caught.value.extra["reason"] == "no_text"


def test_changes_are_counted():
    assert html(b"<p>a\x00b\x01").changes == {"controls": 1, "nul": 1}
