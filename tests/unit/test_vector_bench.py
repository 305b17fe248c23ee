"""The benchmark's own arithmetic: a wrong truth would praise a wrong index."""

import numpy as np
import pytest

from strata.evaluate.vector_pool import Pool, clusters, grow, make_filters, nearest, read_pool, recall


def rng():
    return np.random.default_rng(3)


def test_made_vectors_are_of_length_one_and_the_same_for_the_same_seed():
    pool = clusters(500, 32, rng())
    again = clusters(500, 32, rng())
    assert np.array_equal(pool.passages, again.passages)
    grown = grow(pool, 1_200, rng())
    assert grown.shape == (1_200, 32)
    assert np.array_equal(grown[:500], pool.passages)
    assert np.allclose(np.linalg.norm(grown, axis=1), 1, atol=1e-5)
    assert grow(pool, 100, rng()).shape == (100, 32)


def test_vectors_are_read_from_files(tmp_path):
    made = clusters(40, 8, rng())
    np.savez(tmp_path / "one.npz", d=made.passages * 3, q=made.questions)
    pool = read_pool(tmp_path, rng())
    assert np.allclose(pool.passages, made.passages, atol=1e-6)
    assert "1 file" in pool.origin


@pytest.mark.parametrize("places", [None, np.array([3, 5, 150_001, 199_999])])
def test_the_truth_is_what_comparing_all_gives(places):
    vectors = rng().standard_normal((200_000, 4)).astype(np.float32)
    questions = vectors[:3] + np.float32(0.01)
    among = np.arange(len(vectors)) if places is None else places
    scores = questions @ vectors[among].T
    expected = [[int(among[at]) for at in np.argsort(-row, kind="stable")[:5]] for row in scores]
    assert [row[:5] for row in nearest(vectors, questions, places, 5).tolist()] == [row[:5] for row in expected]


def test_recall_counts_what_was_found_among_as_many():
    truth = np.array([[1, 2, 3], [4, 5, 6]])
    assert recall([[1, 2, 9], [4, 9, 5]], truth, 3) == pytest.approx(4 / 6, abs=1e-4)
    assert recall([[1, 2, 9], [4, 9, 5]], truth, 1) == 1.0
    assert recall([[], []], truth, 3) == 0.0


def test_filters_keep_the_share_asked_for_and_name_the_far_ones():
    pool = Pool(clusters(800, 16, rng()).passages, clusters(800, 16, rng()).questions, "test")
    none, tenth, far = make_filters([0.1], pool.passages, pool.questions, 8, rng())
    assert none.eligible is None
    assert tenth.eligible.passages == len(tenth.places) == 80
    assert len(tenth.eligible.serials) == 10
    assert sorted(set((tenth.places // 8 + 1).tolist())) == tenth.eligible.serials
    assert far.name.endswith("farthest")
