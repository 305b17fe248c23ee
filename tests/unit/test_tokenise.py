"""Terms of passages and queries: any script, any spelling, nothing that is an operator, nothing unbounded."""

from __future__ import annotations

import math
import time
import unicodedata
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strata.text.forms import MAX_TOKEN_CHARS
from strata.text.languages import detect_language, resolve_language, stem
from strata.text.scripts import fold
from strata.text.spans import Coverage, find_spans, find_terms
from strata.text.tokenise import MAX_QUERY_TERMS, analyse, analyse_query, with_heading

any_text = st.text(alphabet=st.characters(), max_size=80) | st.text(
    alphabet="aZ9._-'’/\\@:&+# \n\t部署そはー학교กาéß\u0301\u200d\ufe0f👍\ud800\x00", max_size=60
)


def tokens(text, language=None):
    return set(analyse(text, language).frequencies)


def query_tokens(text, languages=()):
    return [term.token for term in analyse_query(text, languages)]


def finds(query, passage, language=None):
    """Whether the index would return the passage for the query."""
    return bool(set(query_tokens(query, [language] if language else [])) & tokens(passage, language))


@pytest.mark.parametrize(
    ("query", "passage"),
    [
        ('AT&T | "R&D" !cost:* (a|b) <-> \'', "The R&D budget"),
        ("What's your password policies?", "Our password policy"),
        ("ZX-81-Q", "part no. ZX-81-Q, boxed"),
        ("zx-81-q", "ZX-81-Q"),
        ("go 部署 deployment", "部署"),
        ("止损", "设置止损价"),
        ("适者生存", "即适者生存"),
        ("Ｃｌｏｕｄｆｌａｒｅ　認証", "cloudflare"),
        ("cloudflare 認証", "Ｃｌｏｕｄｆｌａｒｅの認証"),
        ("Message: {0}, StackTrace: {1}", "stacktrace follows"),
        ("持股比例", "持股比\n例"),
        ("持股比例", "持股比 \r\n  例"),
        ("to be or not to be", "to be, or not to be"),
        ("それはどうして", "それはどうして?"),
        ("の", "猫の手"),
        ("책", "책을 읽다"),
        ("학교", "학교에서"),
        ("C++", "written in C++."),
        ("c#", "C# and F#"),
        (".NET", "the .NET runtime"),
        ("👍", "done 👍🏽"),
        ("€", "100 €"),
        ("straße", "STRASSE"),
        ("cafe", "Cafe\u0301"),
        ("naive", "naïve"),
        ("ガイド", "ｶﾞｲﾄﾞ"),
        ("1.2.3", "upgrade to 1.2.3 now"),
        ("wifi", "Wi-Fi"),
        ("email", "e-mail"),
        ("user@example.com", "mail user@example.com,"),
        ("/etc/apt/sources.list", "edit /etc/apt/sources.list:"),
        ("sources.list", "edit /etc/apt/sources.list"),
        ("foo bar", "fooBar"),
        ("fooBar", "foo_bar"),
        ("getHTTPResponse", "http response"),
        ("US", "the U.S. government"),
        ("O'Reilly", "oreilly"),
        ("donaudampf", "Donau\u00addampf"),
        ("שלום", "שָׁלוֹם"),
        ("كتاب", "كِتَاب"),
        ("नमस्ते", "नमस्ते दुनिया"),
        ("ёлка", "елка"),
        ("٣", "3"),
        ("ประเทศไทย", "ในประเทศไทยมี"),
        ("½", "1⁄2"),
    ],
)
def test_a_query_finds_the_passage(query, passage):
    assert finds(query, passage)


@pytest.mark.parametrize(
    ("query", "passage", "language"),
    [
        ("eglise", "Un eg, deux eg", "fr"),
        ("java", "coffee script", "en"),
        ("йод", "иод", "ru"),
        ("は", "ば", "ja"),
        ("1.2.3", "1213", "en"),
        ("C#", "sharp", "en"),
    ],
)
def test_a_query_does_not_find_the_decoy(query, passage, language):
    assert not finds(query, passage, language)


@pytest.mark.parametrize("languages", [(), ("fr",), ("en",), ("de", "fr"), ("xx",)])
def test_a_word_is_found_whatever_language_either_side_is_taken_for(languages):
    for language in ("fr", "en", None, "zz"):
        assert set(query_tokens("eglise", languages)) & tokens("Une église fermée", language)


def test_a_compound_gives_its_parts_and_its_whole():
    assert {"zx", "81", "q", "zx-81-q"} <= tokens("ZX-81-Q")
    assert {"foo", "bar", "foobar"} <= tokens("fooBar") & tokens("foo_bar") & tokens("foo-bar")
    assert {"user", "example", "com", "example.com", "user@example.com"} <= tokens("user@example.com")
    assert {"etc", "apt", "sources.list", "etc/apt/sources.list"} <= tokens("/etc/apt/sources.list")
    assert {"python", "3", "python3"} <= tokens("python3")
    assert {"1", "2", "3", "1.2.3"} <= tokens("1.2.3")


def test_a_word_has_its_stem_and_its_exact_form():
    assert tokens("policies", "en") == {"polici", "policies"}
    assert [(term.token, term.weight) for term in analyse_query("policies", ["en"])] == [
        ("polici", 1.0),
        ("policies", 0.1),
    ]


def test_script_runs_are_split_before_words():
    assert {"2019", "年", "年に"} <= tokens("2019年に")
    assert {"go", "部署", "deploy"} <= tokens("go部署deployment")


def test_weak_terms_are_left_out_of_a_query_that_has_others():
    assert query_tokens("the cat", ["en"]) == ["cat"]
    assert query_tokens("猫のこと") == ["猫の", "猫"]
    assert query_tokens("to be or not to be", ["en"]) == ["to", "be", "or", "not"]


def test_a_repeated_word_weighs_more():
    assert [(term.token, term.weight) for term in analyse_query("cat dog cat", ["en"])] == [("cat", 2.0), ("dog", 1.0)]


def test_the_length_counts_words_not_forms():
    assert analyse("The policies of ZX-81-Q", "en").length == 6
    assert analyse("policies policies", "en").length == 2
    assert analyse("持股", "zh").length == 3


def test_a_heading_counts_twice_in_frequencies_and_length():
    joined = with_heading(analyse("cat dog", "en"), analyse("cat", "en"))
    assert joined.frequencies == {"cat": 3, "dog": 1}
    assert joined.length == 4


@pytest.mark.parametrize("text", ["", " ", "!!! ... ---", "\x00", "\ud800", "'", "_", "__", "-+#.", "\u200d\ufe0f", "̀"])
def test_text_without_words_gives_nothing(text):
    assert analyse(text).frequencies == {}
    assert analyse(text).length == 0
    assert analyse_query(text) == ()
    assert find_spans(text, ["a"]) == []


@given(any_text)
def test_any_text_is_analysed_within_bounds(text):
    result = analyse(text)
    assert all(0 < len(token) <= MAX_TOKEN_CHARS and count > 0 for token, count in result.frequencies.items())
    assert 0 <= result.length <= 3 * len(text) + 40
    assert result == analyse(text)


@given(any_text, st.sampled_from(["en", "fr", "de", "ja", "ru"]))
def test_every_query_finds_itself(text, language):
    terms = analyse_query(text, [language])
    present = tokens(text, language)
    assert {term.token for term in terms} <= present
    assert bool(terms) == bool(present)
    if terms:
        assert Coverage(terms, {term.token: 1.0 for term in terms}).of(present) in (0.0, pytest.approx(1.0))


@given(any_text, st.sampled_from(["en", "fr", "de", "ja", "ru"]))
def test_spans_are_ordered_inside_the_text_and_found_for_every_term(text, language):
    terms = {term.token for term in analyse_query(text, [language])}
    spans = find_spans(text, terms, [language])
    assert spans == sorted(spans)
    assert all(0 <= span.start <= span.end <= len(text) for span in spans)
    assert {span.term for span in spans} == terms


@given(any_text, any_text, st.sampled_from(["en", "fr", "de", "ja", "ru"]))
def test_the_terms_of_a_text_are_those_that_have_a_span(text, query, language):
    terms = {term.token for term in analyse_query(f"{query} {text[:20]}", [language])}
    assert find_terms(text, terms, [language]) == {span.term for span in find_spans(text, terms, [language])}


@given(any_text)
def test_analysis_does_not_depend_on_the_normal_form(text):
    assert analyse(text, "en") == analyse(unicodedata.normalize("NFD", text), "en")


@given(any_text)
def test_folding_is_idempotent(text):
    once = fold(unicodedata.normalize("NFKC", text))
    assert fold(once) == once


def test_spans_point_into_the_text_as_given():
    text = "Ｃｌｏｕｄｆｌａｒｅ　認証の「ｶﾞｲﾄﾞ」 e\u0301glise 持股比\n例 ZX-81-Q"
    terms = [term.token for term in analyse_query("cloudflare 認証 ガイド église 持股比例 zx-81-q", ["en"])]
    found = {span.term: text[span.start : span.end] for span in find_spans(text, terms, ["en"])}
    assert found["cloudflare"] == "Ｃｌｏｕｄｆｌａｒｅ"
    assert found["認証"] == "認証"
    assert found["ガイ"] == "ｶﾞｲ"
    assert found["eglise"] == "e\u0301glise"
    assert found["比例"] == "比\n例"
    assert found["zx-81-q"] == "ZX-81-Q"


def test_coverage_is_the_share_of_idf_that_a_text_answers():
    terms = analyse_query("rare common", ["en"])
    weights = {"rare": 3.0, "common": 1.0}
    assert Coverage(terms, weights).of({"rare"}) == pytest.approx(0.75)
    assert Coverage(terms, weights).of({"rare", "common"}) == 1
    assert Coverage(terms, weights).of(()) == 0
    assert Coverage((), {}).of({"rare"}) == 0


def test_coverage_takes_any_form_of_a_word_and_no_fragment_of_one():
    terms = analyse_query("JavaScript policies", ["en"])
    weights = dict.fromkeys((term.token for term in terms), 1.0)
    assert Coverage(terms, weights).of({"java", "script"}) == 0
    assert Coverage(terms, weights).of({"policies"}) == pytest.approx(0.5)
    whole = analyse_query("wi-fi", ["en"])
    assert Coverage(whole, dict.fromkeys((term.token for term in whole), 1.0)).of({"wifi"}) == 1


def test_a_whole_stands_for_the_words_of_its_own_segment():
    groups = {term.token: term.groups for term in analyse_query("alpha/beta-gamma", ["en"])}
    assert groups["alpha"] == (0,)
    assert groups["betagamma"] == (1, 2)
    assert groups["alpha/beta-gamma"] == (0, 1, 2)


def test_a_second_language_adds_stems_to_the_same_words():
    terms = analyse_query("connexions-policies", ["en", "fr"])
    groups = {term.token: (term.groups, term.weight) for term in terms}
    assert groups["connexion"] == ((0,), 1.0)
    assert groups["polici"] == ((1,), 1.0)
    assert groups["polic"] == ((1,), 1.0)
    assert groups["policies"] == ((1,), 0.1)
    assert max(term.groups[-1] for term in terms) == 1


def test_a_long_query_is_cut_to_its_first_terms():
    assert len(analyse_query(" ".join(f"w{number}" for number in range(2000)))) == MAX_QUERY_TERMS
    assert analyse_query("first " + "x y z " * 1000, ["en"])[0].token == "first"


@pytest.mark.parametrize(
    "text",
    ["x" * 1_000_000, "a-" * 500_000, "aB" * 500_000, "部" * 1_000_000, "部 \n" * 300_000, "." * 1_000_000,
     "a'" * 500_000, "部" + " " * 1_000_000, "e\u0301" * 300_000, "\u0301" * 1_000_000, "가" * 1_000_000,
     "1:" * 500_000, "+#" * 500_000, "a/" * 500_000],
    ids=lambda text: repr(text[:4]),
)  # fmt: skip
def test_a_million_characters_of_anything_take_seconds_at_most(text):
    started = time.perf_counter()
    result = analyse(text, "en")
    assert time.perf_counter() - started < 10
    assert all(len(token) <= MAX_TOKEN_CHARS for token in result.frequencies)


def test_long_words_that_differ_only_at_the_end_stay_apart():
    assert not tokens("x" * 100 + "a") & tokens("x" * 100 + "b")
    assert finds("x" * 100, "x" * 100)


def test_threads_analyse_alike():
    texts = [f"policies number {at} connections relational" for at in range(200)]
    expected = [analyse(text, "en") for text in texts]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda text: analyse(text, "en"), texts)) == expected


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("What is the meaning of this and that?", "en"),
        ("Où est la bibliothèque dans cette ville ?", "fr"),
        ("Wo ist hier die nächste Haltestelle und wann?", "de"),
        ("¿Dónde está la biblioteca y cuándo abre?", "es"),
        ("これは日本語の文です", "ja"),
        ("这是中文句子", "zh"),
        ("이것은 한국어입니다", "ko"),
        ("Где находится библиотека?", "ru"),
        ("Πού είναι η βιβλιοθήκη;", "el"),
        ("นี่คือภาษาไทย", "th"),
        ("xyzzy", None),
        ("AT&T R&D", None),
        ("", None),
    ],
)
def test_the_language_is_guessed_from_script_and_function_words(text, language):
    assert detect_language(text) == language


@pytest.mark.parametrize(
    ("name", "code"),
    [("fr", "fr"), ("fr-CA", "fr"), ("pt_BR", "pt"), ("French", "fr"), (" EN ", "en"), ("nb-NO", "no"), ("jpn", "ja"),
     ("", None), (None, None), ("x", None), ("no language at all", None), ("<script>", None)],
)  # fmt: skip
def test_language_tags_and_names_are_understood(name, code):
    assert resolve_language(name) == code


def test_a_language_without_a_stemmer_keeps_words_whole():
    assert stem("policies", "vi") == "policies"
    assert stem("policies", "ja") == "polici"
    assert stem("библиотеки", "en") == stem("библиотека", "ru")


def test_idf_of_unknown_terms_lowers_coverage():
    terms = analyse_query("known unknown", ["en"])
    weights = {"known": math.log(2), "unknown": math.log(200)}
    assert Coverage(terms, weights).of({"known"}) < 0.2
