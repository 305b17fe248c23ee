import json

from hypothesis import given
from hypothesis import strategies as st

from strata.text.normalise import clean_json, decode_bytes, normalise_text

ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=80)


def test_clean_text_is_returned_as_it_is():
    text = "naïve ｆｕｌｌ 한국어 עברית \u202a👩‍👩‍👧\tx\n"
    result = normalise_text(text)
    assert result.text is text
    assert result.changes == {}


def test_every_change_is_counted_by_name():
    result = normalise_text("\ufeffa\x00b\r\nc\rd\x07\x0be\ufeff\ud800f")
    assert result.text == "ab\nc\nd\nef"
    assert result.changes == {"nul": 1, "bom": 2, "controls": 2, "carriage_returns": 2, "lone_surrogates": 1}


def test_a_lone_surrogate_is_dropped_and_a_split_pair_is_joined_again():
    assert normalise_text("x\udbffy").text == "xy"
    joined = normalise_text("\ud835" + "\udc00")
    assert joined.text == "\U0001d400"
    assert joined.changes == {"split_pairs": 1}
    assert normalise_text("\udc00\ud835").text == ""


@given(ANY_TEXT)
def test_normalised_text_can_be_stored_and_normalising_again_changes_nothing(text):
    once = normalise_text(text)
    once.text.encode()
    assert "\x00" not in once.text
    again = normalise_text(once.text)
    assert again.text == once.text
    assert again.changes == {}


def test_byte_order_marks_name_the_encoding():
    for encoding in ("utf-8-sig", "utf-16", "utf-32"):
        decoded = decode_bytes("žluť 東京".encode(encoding))
        assert decoded.text == "žluť 東京"
        assert decoded.changes == {"bom": 1}


def test_utf16_without_a_mark_is_told_by_its_zeros():
    assert decode_bytes("plain words here".encode("utf-16-le")).text == "plain words here"
    assert decode_bytes("plain words here".encode("utf-16-be")).text == "plain words here"


def test_a_declared_charset_is_used_and_an_unknown_one_ignored():
    assert decode_bytes("привет".encode("koi8-r"), "koi8-r").text == "привет"
    assert decode_bytes("привет".encode(), "no-such-charset").text == "привет"
    assert decode_bytes(b"+AGE-", "utf-7").text == "+AGE-"
    assert decode_bytes(b"abc", "hex").text == "abc"


def test_utf8_wins_over_a_habitual_latin1_declaration():
    assert decode_bytes("café".encode(), "iso-8859-1").text == "café"
    assert decode_bytes("café".encode("latin-1"), "iso-8859-1").text == "café"


def test_japanese_encodings_are_guessed():
    text = "これは日本語の文章です。カタカナも漢字もあります。"
    for encoding in ("cp932", "euc_jp"):
        assert decode_bytes(text.encode(encoding)).text == text


def test_stray_bytes_in_utf8_are_counted_and_shown():
    decoded = decode_bytes("größe é ü ö ß ".encode() * 4 + b"\xff\xfe!")
    assert decoded.text.endswith("\ufffd!")
    assert decoded.changes == {"undecodable_bytes": 2}


def test_western_bytes_without_a_declaration_are_read():
    assert decode_bytes("Les élèves français étaient là où ça plaît. ".encode("cp1252") * 3).text.startswith(
        "Les élèves"
    )


@given(st.binary(max_size=200))
def test_any_bytes_decode_to_something_that_can_be_stored(data):
    normalise_text(decode_bytes(data).text).text.encode()


def test_metadata_is_cleaned_in_keys_and_values_and_counted():
    changes: dict[str, int] = {}
    value = clean_json({"a\x00": ["x\udbff", {"b": float("nan")}], "n": 2**70}, changes)
    assert value == {"a": ["x", {"b": None}], "n": str(2**70)}
    assert changes == {"nul": 1, "lone_surrogates": 1}


def test_metadata_nested_too_deep_is_cut_and_counted():
    value: object = "end"
    for _ in range(200):
        value = [value]
    changes: dict[str, int] = {}
    assert json.dumps(clean_json(value, changes)).count("[") == 33
    assert changes == {"metadata_cut": 1}


def test_metadata_that_multiplies_through_aliases_stays_small():
    value: object = ["lol"] * 10
    for _ in range(12):
        value = [value] * 10
    changes: dict[str, int] = {}
    assert len(json.dumps(clean_json(value, changes))) < 1_000_000
    assert changes["metadata_cut"] > 0


@given(
    st.recursive(
        ANY_TEXT | st.floats() | st.integers() | st.none() | st.dates(),
        lambda inner: st.lists(inner) | st.dictionaries(ANY_TEXT, inner),
        max_leaves=20,
    )
)
def test_cleaned_metadata_is_strict_json(value):
    json.dumps(clean_json(value), allow_nan=False, ensure_ascii=False).encode()
