"""Text of documents inside text of ours."""

import json

from hypothesis import given
from hypothesis import strategies as st

from strata.text.quoting import code, code_json, inline, quoted

BREAKS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"
hostile = st.text(alphabet=st.one_of(st.sampled_from(BREAKS + "`>#- \t"), st.characters(codec="utf-8")), max_size=60)


def test_every_kind_of_line_is_quoted():
    text = "a" + "".join(f"{char}### 1. b" for char in BREAKS)
    lines = quoted(text).splitlines()
    assert lines == ["> a", *["> ### 1. b"] * len(BREAKS)]
    assert quoted("") == ""


@given(hostile)
def test_no_line_of_a_quoted_text_is_without_its_mark(text):
    assert all(line.startswith("> ") for line in quoted(text).splitlines())


@given(hostile)
def test_an_inline_text_is_one_line_and_ends_no_code(text):
    assert len(inline(text).splitlines()) <= 1
    assert "`" not in inline(text)
    assert inline(text) == inline(text).strip()
    assert code(text).count("`") == 2


@given(hostile)
def test_json_as_code_is_one_line_and_the_same_value(text):
    written = code_json(json.dumps({"source": text}, ensure_ascii=False))
    assert len(written.splitlines()) == 1
    assert written.count("`") == 2
    assert json.loads(written[1:-1]) == {"source": text}
