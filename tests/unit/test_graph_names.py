"""How spellings are compared."""

import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strata.graph.names import bigrams, dice, fold, key


@pytest.mark.parametrize(
    ("name", "folded"),
    [
        ("Straße", "straße"),
        ("ＡＢＣ１２", "abc12"),
        ("カタカナ", "かたかな"),
        ("ｶﾀｶﾅ", "かたかな"),
        ("コーヒー", "こーひー"),
        ("ヷ", "ヷ"),
        ("ΟΔΟΣ", "οδοσ"),
        ("İ", "i̇"),
        ("Ⅷ", "viii"),
        ("Café", "café"),
        (" a  b ", " a  b "),
        ("", ""),
        ("\ud800", "\ud800"),
        ("😀", "😀"),
    ],
)
def test_folding_keeps_what_tells_names_apart(name, folded):
    assert fold(name) == folded


@given(st.text())
def test_folding_lowers_character_by_character(name):
    lowered = "".join(character.lower() for character in name)
    normal = "".join(character.lower() for character in unicodedata.normalize("NFKC", lowered))
    shifted = "".join(chr(ord(c) - 0x60) if "ァ" <= c <= "ヶ" else c for c in normal)
    assert fold(name) == shifted


@pytest.mark.parametrize(
    "spelling", ["System Admin", "system admin", "SystemAdmin", "system-admin", "SYSTEM_ADMIN", " system  ADMIN "]
)
def test_spellings_of_one_entity_have_one_key(spelling):
    assert key(spelling) == "systemadmin"


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("System Admin", "系统管理员"),
        ("1-12", "11-2"),
        ("1 2", "12"),
        ("C-", "C"),
        ("C++", "C"),
        ("-5", "5"),
        ("below -5", "below 5"),
        ("_private", "private"),
        ("-", " "),
        ("Straße", "Strasse"),
        ("résumé", "resume"),
    ],
)
def test_what_separators_alone_tell_apart_stays_apart(left, right):
    assert key(left) != key(right)


def test_a_key_is_never_empty():
    assert [key(name) for name in (" ", "---", "_", "a")] == [" ", "---", "_", "a"]


@given(st.text(alphabet="aB1 -_カﾅ"))
@settings(max_examples=1000)
def test_a_key_is_its_own_key(name):
    assert key(key(name)) == key(name)


def test_bigrams_of_one_character_are_none():
    assert bigrams("a") == frozenset()
    assert bigrams("aaa") == {"aa"}


@pytest.mark.parametrize(
    ("left", "right", "score"),
    [("青嶺酒造", "青嶺酒蔵", 2 / 3), ("ab", "ab", 1.0), ("ab", "cd", 0.0), ("a", "a", 0.0), ("", "", 0.0)],
)
def test_dice_counts_shared_bigrams(left, right, score):
    assert dice(left, right) == score
    assert dice(right, left) == score
