"""Near duplicates by bigrams: the same as comparing each with each, at a fraction of the cost."""

from __future__ import annotations

import random
import time
import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from evidence_support import candidate
from strata.evidence.bigrams import (
    LEAST_CONFLICT_BIGRAMS,
    MAX_CONFLICTS,
    SAME_BIGRAMS,
    SAME_IN_WORDS,
    SameBigrams,
    SameInWords,
)
from strata.evidence.duplicates import DuplicateRule, drop_near_duplicates
from strata.text.folding import fold

PIECES = ["alpha", "Beta", "gamma", "認証", "パスワード", "éclair", "𠮷", "42", "7", " ", ".", "\0", "Σας"]


def bigrams(text: str) -> set[str]:
    """The definition, word for word."""
    folded = fold(text)
    if len(folded) == 1:
        return {folded * 2}
    return {folded[at : at + 2] for at in range(len(folded) - 1)}


def naive_dice(first: str, second: str) -> float:
    one, two = bigrams(first), bigrams(second)
    return 2 * len(one & two) / (len(one) + len(two)) if one or two else 1.0


def naive(texts: list[str]) -> dict[int, int]:
    """The duplicates and what each is a duplicate of."""
    kept: list[int] = []
    found: dict[int, int] = {}
    for at, text in enumerate(texts):
        twin = next((other for other in kept if naive_dice(text, texts[other]) >= 0.9), None)
        if twin is None:
            kept.append(at)
        else:
            found[at] = twin
    return found


def dropped(texts: list[str], rule: DuplicateRule = SAME_BIGRAMS) -> dict[int, int]:
    pool = [candidate(f"{at:04}", text=text, source_key=str(at)) for at, text in enumerate(texts)]
    kept, omitted = drop_near_duplicates(pool, len(pool), rule)
    assert len(kept) + len(omitted) == len(texts)
    return {int(item.candidate.source_key): int(item.duplicate_of or -1) for item in omitted}


def variants(seed: int, size: int) -> list[str]:
    """Texts of one vocabulary, many made of another by a small change."""
    rng = random.Random(seed)
    texts: list[str] = []
    for _ in range(size):
        if texts and rng.random() < 0.6:
            words = rng.choice(texts).split(" ")
            for _ in range(rng.randint(0, 2)):
                words[rng.randrange(len(words))] = rng.choice(PIECES)
        else:
            words = [rng.choice(PIECES) for _ in range(rng.choice([0, 1, 2, 20, 60]))]
        texts.append(" ".join(words))
    return texts


@given(
    st.lists(st.one_of(st.text(max_size=6), st.lists(st.sampled_from(PIECES), max_size=12).map("".join)), max_size=30)
)
@example(["", "", "a", "a", "aa", "A", "b", ""])
@example(["", "x"])
@example(["\ud800", "\ud800\ud800", "\ud800 lone", "𐀀"])
def test_the_same_is_dropped_as_by_comparing_each_with_each(texts):
    assert dropped(texts) == naive(texts)


@given(st.integers(0, 2**32), st.integers(0, 120))
def test_variants_of_longer_texts_are_dropped_as_by_comparing_each_with_each(seed, size):
    texts = variants(seed, size)
    assert dropped(texts) == naive(texts)


@pytest.mark.parametrize("common", range(15, 20))
def test_the_threshold_is_met_exactly(common):
    # 20 characters of which each occurs once have 19 bigrams; the other text shares the first of them.
    base = "".join(chr(0x4E00 + at) for at in range(20))
    other = base[: common + 1] + "".join(chr(0x5E00 + at) for at in range(19 - common))
    assert bool(dropped([base, other])) == (2 * common / 38 >= 0.9)


def test_a_thousand_passages_of_a_hundred_words_take_milliseconds():
    rng = random.Random(5)
    words = ["".join(rng.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(rng.randint(2, 9))) for _ in range(2000)]
    texts = [" ".join(rng.choice(words) for _ in range(100)) for _ in range(1000)]
    started = time.perf_counter()
    assert dropped(texts) == {}
    # A tenth of a second on a busy machine; comparing each with each takes two seconds.
    assert time.perf_counter() - started < 0.5


def test_a_thousand_copies_are_one():
    assert dropped(["the same text again and again"] * 1000) == dict.fromkeys(range(1, 1000), 0)


def test_only_passages_are_compared():
    pool = [candidate(str(at), kind="community", text="the same summary") for at in range(2)]
    assert drop_near_duplicates(pool, 2, SAME_BIGRAMS) == (pool, [])


@given(st.integers(0, 2**32), st.integers(0, 80))
def test_numbers_never_let_a_text_drop_another(seed, size):
    texts = variants(seed, size)
    for at, twin in dropped(texts, SAME_IN_WORDS).items():
        assert sorted(numbers(texts[at])) == sorted(numbers(texts[twin]))


def numbers(text: str) -> list[str]:
    return [word for word in fold(text).split() if word.isdecimal()]


def conflicts(texts: list[str]) -> dict[int, list[int]]:
    finder = SameInWords(texts)
    for at in range(len(texts)):
        if finder.twin(at) is None:
            finder.keep(at)
    return {at: sorted(others) for at, others in finder.conflicts().items()}


def test_a_conflict_is_named_on_both_sides():
    base = "The retention period for audit logs is {} days."
    assert conflicts([base.format(30), "Something else.", base.format(90)]) == {0: [2], 2: [0]}


def test_a_form_filled_in_many_times_is_no_conflict():
    base = "Order {} was shipped on the day after it was placed."
    assert len(conflicts([base.format(at) for at in range(MAX_CONFLICTS + 1)])) == MAX_CONFLICTS + 1
    assert conflicts([base.format(at) for at in range(MAX_CONFLICTS + 2)]) == {}


def test_short_texts_are_told_apart_by_their_numbers():
    assert len(bigrams("section 0")) < LEAST_CONFLICT_BIGRAMS
    assert conflicts(["Section 1", "Section 2"]) == {}
    assert dropped(["Section 1", "Section 2"], SAME_IN_WORDS) == {}


def test_long_texts_in_one_vocabulary_are_only_the_same_in_the_same_order():
    rng = random.Random(7)
    words = [a + b for a in ("retent", "polic", "secur", "delet", "arch") for b in ("ion", "y", "ity", "ed")]
    texts = [" ".join(rng.choice(words) for _ in range(300)) for _ in range(2)]
    assert dropped(texts) == {1: 0}
    assert dropped([*texts, texts[1].upper()], SAME_IN_WORDS) == {2: 1}


def test_a_finder_of_nothing_finds_nothing():
    assert SameBigrams([]).conflicts() == {}


@pytest.mark.parametrize(
    ("name", "folded"),
    [
        ("Straße", "straße"),
        ("ＡＢＣ １２", "abc 12"),
        ("カタカナ・ヴー", "かたかな・ゔー"),
        ("ﾊﾟｽﾜｰﾄﾞ", "ぱすわーど"),
        ("ΟΔΟΣ", "οδοσ"),
        ("𝚺", "σ"),
        ("Café", "café"),
        (" A ", " a "),
        ("", ""),
        ("\0", "\0"),
        ("\ud800A", "\ud800a"),
    ],
)
def test_folding(name, folded):
    assert fold(name) == folded


@given(st.text())
def test_folding_is_lower_compatibility_lower_hiragana_by_character(text):
    once = unicodedata.normalize("NFKC", "".join(map(str.lower, text)))
    again = "".join(map(str.lower, once))
    assert fold(text) == "".join(chr(ord(char) - 0x60) if "ァ" <= char <= "ヶ" else char for char in again)
