import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strata.text.lines import WHITE_SPACE, paragraph_lines

UGLY = st.text(st.sampled_from("\n\n\n\rab \t\x1c\x1f\x85\xa0\u2028\u3000漢😀\ufeff\u200b\x0b\x00"), max_size=60)
# The code points that the Unicode property White_Space has, as its own table lists them.
RANGES = [(9, 13), (32, 32), (0x85, 0x85), (0xA0, 0xA0), (0x1680, 0x1680), (0x2000, 0x200A), (0x2028, 0x2029)]
RANGES += [(0x202F, 0x202F), (0x205F, 0x205F), (0x3000, 0x3000)]


def texts(text):
    return [text[start:end] for start, end in paragraph_lines(text)]


def naive(text):
    spans, offset, first, last = [], 0, None, 0
    for line in text.split("\n"):
        content = line.removesuffix("\r")
        if all(char in WHITE_SPACE for char in content):
            if first is not None:
                spans.append((first, last))
            first = None
        else:
            first = offset if first is None else first
            last = offset + len(content)
        offset += len(line) + 1
    if first is not None:
        spans.append((first, last))
    return spans


@given(UGLY)
def test_paragraphs_are_those_of_the_rule_read_line_by_line(text):
    assert paragraph_lines(text) == naive(text)


@given(UGLY)
def test_paragraphs_are_in_order_apart_and_never_empty(text):
    end = -1
    for start, stop in paragraph_lines(text):
        assert end < start < stop <= len(text)
        end = stop


def test_white_space_is_the_unicode_property_and_no_more():
    assert sorted(map(ord, WHITE_SPACE)) == [code for first, last in RANGES for code in range(first, last + 1)]


@pytest.mark.parametrize("text", ["", "\n", "\r\n\r\n", " \t\u3000\u2028\x85 \n\n \r", "\r"])
def test_a_text_without_a_visible_character_has_no_paragraphs(text):
    assert paragraph_lines(text) == []


def test_breaks_inside_a_paragraph_stay_and_the_last_one_goes():
    assert texts("a\r\nb\r\n\r\n  c \r\n") == ["a\r\nb", "  c "]
    assert texts("導入。\n\n本編。") == ["導入。", "本編。"]


def test_only_a_line_feed_ends_a_line():
    assert texts("a\rb\u2028\u2028c\x0b\x0cd\x85\x85e\r\r\n\nf\r") == ["a\rb\u2028\u2028c\x0b\x0cd\x85\x85e\r", "f"]


@pytest.mark.parametrize("char", "\x1c\x1d\x1e\x1f\x00\u200b\ufeff")
def test_a_separator_control_is_a_visible_character(char):
    assert texts(f"a\n{char}\nb") == [f"a\n{char}\nb"]


@pytest.mark.parametrize("unit", ["x\n", "\n", " ", "\r", "x\n\n", " \n", "\u3000x \r\n"])
def test_eight_mebibytes_of_anything_take_no_more_than_a_moment(unit):
    text = unit * (8 * 1024 * 1024 // len(unit))
    started = time.perf_counter()
    paragraph_lines(text)
    assert time.perf_counter() - started < 10
