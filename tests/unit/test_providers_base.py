"""What every embedder promises: checked vectors, well-formed texts, spaces with an identity."""

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from strata.errors import StrataError
from strata.providers.embeddings.base import EmbeddingSpace, checked, well_formed
from strata.providers.embeddings.local import LOCAL_SPACE


def space(**changes):
    return EmbeddingSpace(**{"provider": "endpoint", "model": "m", "revision": "", "dimension": 3} | changes)


def refusal(rows, count=2, dimension=3):
    with pytest.raises(StrataError) as caught:
        checked(rows, count=count, dimension=dimension)
    assert caught.value.code == "embedding_refused"
    return caught.value.detail


@given(arrays.arrays(np.float32, (4, 5), elements=st.floats(-1e6, 1e6, width=32)))
def test_checked_vectors_have_length_one_and_keep_their_direction(rows):
    norms = np.linalg.norm(rows.astype(np.float64), axis=1)
    if not (norms > 0).all():
        assert "zeros" in refusal(rows, 4, 5)
        return
    vectors = checked(rows, count=4, dimension=5)
    assert vectors.dtype == np.float32
    assert np.allclose(np.linalg.norm(vectors.astype(np.float64), axis=1), 1, atol=1e-6)
    assert np.allclose(vectors, rows / norms[:, None], atol=1e-6)


@pytest.mark.parametrize("rows", [[[1e30, 0, 0], [1e-30, 0, 0]], [[3.4e38, 3.4e38, 3.4e38], [1e-45, 0, 0]]])
def test_very_long_and_very_short_vectors_become_unit_vectors(rows):
    assert np.allclose(np.linalg.norm(checked(rows, count=2, dimension=3), axis=1), 1)


def test_integers_are_numbers_too():
    assert checked([[1, 0, 0], [0, 2, 0]], count=2, dimension=3).tolist() == [[1, 0, 0], [0, 1, 0]]


def test_no_text_gives_no_vector():
    assert checked([], count=0, dimension=3).shape == (0, 3)


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([[1, 2, 3]], "1 vectors for 2 texts"),
        ([[1, 2, 3]] * 3, "3 vectors for 2 texts"),
        ([[1, 2], [3, 4]], "vectors of 2 dimensions instead of 3"),
        ([[1, 2, 3], [1, 2]], "unlike lengths"),
        ([[1, 2, 3], [0, 0, 0]], "a vector of zeros"),
        ([[1, 2, 3], [1, float("nan"), 3]], "NaN or infinity"),
        ([[1, 2, 3], [1, float("inf"), 3]], "NaN or infinity"),
        ([[1, 2, 3], [1, 1e39, 3]], "NaN or infinity"),
        ([[1, 2, 3], [1, None, 3]], "not one list of numbers"),
        ([["1", "2", "3"], ["1", "2", "3"]], "not one list of numbers"),
        ([[True, False, True], [True, False, True]], "not one list of numbers"),
        ([[[1], [2], [3]], [[1], [2], [3]]], "not one list of numbers"),
        ([1.0, 2.0], "not one list of numbers"),
        ([[], []], "dimensions instead of 3|not one list"),
    ],
)
def test_what_is_no_vector_of_each_text_is_refused_as_a_whole(rows, words):
    import re

    assert re.search(words, refusal(rows))


@given(st.text(st.characters(exclude_categories=[]), max_size=40))
def test_well_formed_text_can_be_written_and_changes_nothing_but_surrogates(text):
    clean = well_formed(text)
    clean.encode()
    assert well_formed(clean) == clean
    if not any("\ud800" <= character <= "\udfff" for character in text):
        assert clean == text


def test_a_lone_surrogate_becomes_the_replacement_character():
    assert well_formed("a\ud800b") == "a\ufffdb"
    assert well_formed("\udc00") == "\ufffd"
    assert well_formed("\ud83d\ude00") == "\U0001f600"


@pytest.mark.parametrize("field", [name for name in EmbeddingSpace.__struct_fields__ if name != "dimension"])
def test_every_field_of_a_space_is_part_of_its_identity(field):
    changed = msgspec.structs.replace(space(), **{field: 7 if field == "max_tokens" else "other"})
    assert changed.fingerprint != space().fingerprint
    assert space(dimension=4).fingerprint != space().fingerprint


def test_the_identity_of_a_space_survives_storage():
    stored = msgspec.json.decode(msgspec.json.encode(LOCAL_SPACE), type=EmbeddingSpace)
    assert stored.fingerprint == LOCAL_SPACE.fingerprint


def test_the_identity_of_the_local_space_does_not_move_by_itself():
    assert LOCAL_SPACE.fingerprint.hex()[:16] == "a5725b2c5a22e695"
