"""Counting by a model's own tokenizer."""

import subprocess
import sys
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strata.text.counting import Counter, counter_for, known_models

# The counts that OpenAI's cookbook gives for these two encodings.
PUBLISHED = [
    ("antidisestablishmentarianism", 6, 6),
    ("2 + 2 = 4", 7, 7),
    ("お誕生日おめでとう", 9, 8),
]


@pytest.mark.parametrize(("text", "cl100k", "o200k"), PUBLISHED)
def test_counts_are_those_that_are_published(text, cl100k, o200k):
    assert Counter("cl100k_base").count([text]) == cl100k
    assert Counter("o200k_base").count([text]) == o200k


@pytest.mark.parametrize(
    ("model", "encoding"),
    [
        ("gpt-4", "cl100k_base"),
        ("gpt-4-0613", "cl100k_base"),
        ("gpt-4-turbo-2024-04-09", "cl100k_base"),
        ("gpt-3.5-turbo", "cl100k_base"),
        ("gpt-35-turbo-16k", "cl100k_base"),
        ("text-embedding-3-small", "cl100k_base"),
        ("text-embedding-3-large", "cl100k_base"),
        ("text-embedding-ada-002", "cl100k_base"),
        ("gpt-4o", "o200k_base"),
        ("gpt-4o-mini", "o200k_base"),
        ("GPT-4o-2024-08-06", "o200k_base"),
        ("gpt-4.1-nano", "o200k_base"),
        ("gpt-5", "o200k_base"),
        ("gpt-5-mini", "o200k_base"),
        ("gpt-5.1", "o200k_base"),
        ("openai/gpt-5", "o200k_base"),
        ("ft:gpt-4o-mini-2024-07-18:acme::abc123", "o200k_base"),
        ("ft:gpt-4:acme", "cl100k_base"),
        ("o1", "o200k_base"),
        ("o3-mini", "o200k_base"),
        ("gpt-oss-120b", "o200k_base"),
        ("  gpt-4o\n", "o200k_base"),
        ("voyage-3", "voyage3_base"),
        ("o200k_base", "o200k_base"),
        ("cl100k_base", "cl100k_base"),
    ],
)
def test_a_model_is_known_by_its_family(model, encoding):
    counter = counter_for(model)
    assert counter is not None
    assert counter.encoding == encoding


@pytest.mark.parametrize(
    "model",
    [
        "",
        " ",
        "claude-sonnet-4",
        "gemini-2.5-pro",
        "llama-3",
        "gpt",
        "gpt-",
        "gpt-4x",
        "gpt-4.7",
        "gpt-50",
        "gpt-6",
        "o1x",
        "o",
        "text-embedding-3",
        "voyage-3.5",
        "voyage-3-lite",
        "azure/gpt-4o",
        "gpt-4o\nx",
        "gpt-4o\0",
        "\ud800",
        "ｇｐｔ-4o",
        "質問",
        "gpt-4o-" + "x" * 100_000,
    ],
)
def test_any_other_name_has_no_counter(model):
    assert counter_for(model) is None


def test_every_name_that_is_listed_is_known_and_they_stand_in_order():
    names = known_models()
    assert list(names) == sorted(set(names))
    assert all(counter_for(name) is not None for name in names)
    assert all(counter_for(name).count(["hello world"]) == 2 for name in names)


def test_texts_add_up_each_by_itself():
    counter = counter_for("gpt-4o")
    assert counter.count([]) == 0
    assert counter.count(["", ""]) == 0
    assert counter.count(["hel", "lo"]) == counter.count(["hel"]) + counter.count(["lo"])
    assert counter.count(text for text in ("hello", " world")) == 2


@pytest.mark.parametrize("text", ["<|endoftext|>", "<|endofprompt|>", "<|fim_prefix|>"])
def test_a_control_token_in_a_text_is_text(text):
    assert counter_for("gpt-4o").count([text]) > 1
    assert counter_for("gpt-4").count([text]) > 1


def test_a_lone_surrogate_counts_as_the_replacement_character():
    counter = counter_for("gpt-5")
    assert counter.count(["a\ud800b"]) == counter.count(["a\ufffdb"])
    assert counter.count(["\udc00"]) == counter.count(["\ufffd"])
    assert counter.count(["\ud83d\ude00"]) == counter.count(["😀"])


@given(st.lists(st.text(st.characters(codec=None), max_size=200), max_size=5))
def test_any_text_has_a_count_of_at_most_one_token_a_byte(texts):
    size = sum(len(text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode()) for text in texts)
    for model in ("gpt-4", "gpt-4o", "voyage-3"):
        assert bool(size) <= counter_for(model).count(texts) <= size


EIGHT_MEBIBYTES = 2**23
HUGE = {
    "letters": "A" * EIGHT_MEBIBYTES,
    "blanks": " " * EIGHT_MEBIBYTES,
    "lines": "\n" * EIGHT_MEBIBYTES,
    "nul": "\0" * EIGHT_MEBIBYTES,
    "words": "Hello, world 123\r\n" * (EIGHT_MEBIBYTES // 18),
    "cjk": "質問" * (EIGHT_MEBIBYTES // 6),
    "emoji": "👩\u200d👩\u200d👧" * (EIGHT_MEBIBYTES // 18),
    "marks": "a" + "\u0301" * (EIGHT_MEBIBYTES // 2),
    "surrogates": "\ud800" * (EIGHT_MEBIBYTES // 3),
}


@pytest.mark.parametrize("kind", HUGE)
def test_eight_mebibytes_take_no_more_than_seconds(kind):
    counter = counter_for("gpt-4o")
    counter.count(["warm"])
    started = time.monotonic()
    assert 0 < counter.count([HUGE[kind]]) <= EIGHT_MEBIBYTES
    assert time.monotonic() - started < 10


def test_threads_count_alike():
    counter = counter_for("gpt-4o")
    counts = []
    threads = [threading.Thread(target=lambda: counts.append(counter.count(["hello world "] * 100))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(counts)) == 1


def test_the_tokenizer_is_loaded_by_the_first_count_and_without_what_surrounds_it():
    program = """
import sys
from strata.text import counting
counter = counting.counter_for("gpt-4o")
assert counting._bindings.cache_info().currsize == 0
assert counter.count(["hello world"]) == 2
assert counting._bindings.cache_info().currsize == 1
assert "bpe_openai" not in sys.modules
import bpe_openai
assert len(bpe_openai.get_encoding("o200k_base").encode("hello world")) == 2
assert counting.counter_for("gpt-4").count(["hello world"]) == 2
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_without_the_package_the_first_count_says_what_is_missing(monkeypatch):
    from strata.text import counting

    monkeypatch.setattr(counting, "_PACKAGE", "no_such_package_at_all")
    with pytest.raises(ImportError, match="bpe-openai is not installed"):
        counting._bindings.__wrapped__()
