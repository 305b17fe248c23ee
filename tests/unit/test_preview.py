"""Previews show the place that answers, and the token counter is the declared one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from strata.text.estimate import token_quarters, tokens_of_quarters
from strata.text.preview import preview


def span(text, word):
    start = text.index(word)
    return (start, start + len(word), word)


def test_a_short_text_is_shown_whole_with_its_white_space_collapsed():
    assert preview("  One\n\n two\tthree ", [], 600) == "One two three"


def test_the_window_stands_around_the_hit_and_not_at_the_beginning():
    text = "Filler sentence here. " * 80 + "The needle is in this sentence. " + "More filler follows. " * 80
    shown = preview(text, [span(text, "needle")], 200)
    assert "The needle is in this sentence." in shown
    assert shown.startswith("…")
    assert shown.endswith("…")


def test_the_window_with_most_distinct_terms_wins():
    text = "alpha " * 3 + "x " * 400 + "alpha beta. " + "y " * 400
    spans = [(m, m + 5, "alpha") for m in (0, 6, 12)]
    at = text.index("alpha beta")
    spans += [(at, at + 5, "alpha"), (at + 6, at + 10, "beta")]
    assert "alpha beta" in preview(text, spans, 120)


@given(st.text(max_size=3000), st.integers(80, 700), st.data())
def test_a_preview_never_exceeds_its_length(text, limit, data):
    ends = st.integers(0, len(text))
    spans = sorted({tuple(sorted((data.draw(ends), data.draw(ends)))) for _ in range(4)})
    shown = preview(text, [(a, b, str(a % 3)) for a, b in spans], limit)
    assert len(shown) <= limit


@given(st.text(max_size=200))
def test_the_counter_counts_a_quarter_for_ascii_and_one_for_the_rest(text):
    assert token_quarters(text) == sum(1 if char.isascii() else 4 for char in text)
    assert tokens_of_quarters(token_quarters(text)) >= len(text) / 4


def test_a_number_or_a_version_is_never_cut():
    text = "word " * 30 + "upgrade to version 1.2.31 now and " + "word " * 60
    for limit in range(150, 190):
        shown = preview(text, [span(text, "upgrade")], limit).strip("…").split()
        assert not any(piece.startswith("1.") and piece != "1.2.31" for piece in shown), (limit, shown)
