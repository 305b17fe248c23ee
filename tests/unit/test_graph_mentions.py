"""Which names a question mentions."""

from __future__ import annotations

import pytest

from strata.graph.mentions import mentions
from strata.graph.vocabulary import Vocabulary

NAMES = ["Ada", "Ada Lovelace", "Analytical Engine", "engine", "青嶺酒造", "青嶺", "杜氏", "x", "R&D", "東京", "東京都"]
VOCABULARY = Vocabulary(list(enumerate(NAMES)), [("the Countess", 1), ("アナリティカル", 2)])


def _found(text, **options):
    return [VOCABULARY.names[item.index] for item in mentions(VOCABULARY, text, **options)]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("What did ADA LOVELACE write?", ["Ada Lovelace"]),
        ("Did Ada know the engine?", ["engine", "Ada"]),
        ("Adamant engines", []),
        ("who was the countess", ["Ada Lovelace"]),
        ("青嶺酒造の杜氏は誰か", ["青嶺酒造", "杜氏"]),
        ("東京都の人口", ["東京都"]),
        ("あなりてぃかる とは", ["Analytical Engine"]),
        ("who runs R&D?", ["R&D"]),
        ("x marks the spot", []),
        ("", []),
        ("🙂 \0 \udc00", []),
    ],
)
def test_a_name_is_found_whole_and_the_longest_wins(text, names):
    assert _found(text) == names


def test_a_name_counts_once_and_no_more_than_asked_for_come_back():
    assert _found("Ada, Ada and the engine") == ["engine", "Ada"]
    assert _found("Ada, Ada and the engine", most=1) == ["engine"]


def test_a_long_text_is_read_from_its_beginning():
    assert _found("Ada " + "word " * 100_000) == ["Ada"]
