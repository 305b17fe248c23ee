"""The embedders of this process: the model that comes with Strata, and folders with an ONNX model."""

import asyncio
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import numpy as np
import onnx
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from strata.errors import StrataError
from strata.providers.embeddings import e5, local
from strata.providers.embeddings.embedders import Embedders
from strata.providers.embeddings.local import LOCAL_SPACE, LocalEmbedder
from strata.providers.embeddings.onnx import OnnxModel
from strata.settings import load_settings

GOLDEN = json.loads((Path(__file__).parents[1] / "data" / "e5_golden.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def models_home(tmp_path_factory):
    """A STRATA_HOME whose model is converted once for the module."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def folder(models_home):
    return e5.prepare(models_home / "models")


@pytest.fixture(scope="module")
def model(folder):
    return OnnxModel(folder)


@pytest.fixture(scope="module")
async def embedder(models_home, folder):
    opened = await LocalEmbedder.open_local(load_settings({}, home=str(models_home)))
    yield opened
    await opened.close()


def cosine(left, right):
    left, right = np.asarray(left, np.float64), np.asarray(right, np.float64)
    return float(left @ right / np.linalg.norm(left) / np.linalg.norm(right))


@pytest.mark.parametrize("golden", GOLDEN, ids=lambda golden: ascii(golden["text"][:24]))
def test_tokens_and_vectors_are_the_recorded_ones(model, golden):
    assert model._ids(golden["text"]) == golden["ids"]
    assert model.tokens(golden["text"]) == len(golden["ids"])
    # Processors differ in how they add 8-bit products: near, not equal.
    assert cosine(model.embed(golden["text"]), golden["vector"]) > 0.99


def test_a_long_text_is_cut_where_the_window_ends(model):
    assert model.tokens("word " * 5000) == model.max_tokens == e5.MAX_TOKENS
    assert model.embed("word " * 5000).shape == (384,)


PAIRS = {
    "en": ("How tall is Mount Fuji?", "The summit of Mount Fuji lies at 3,776 metres.", "Rice is sold by the sack."),
    "ja": ("富士山の高さはどれくらいですか", "富士山の頂上は標高3776メートルです。", "米は袋で売られています。"),
    "zh": ("富士山有多高？", "富士山的山顶海拔3776米。", "大米按袋出售。"),
}


@pytest.mark.parametrize("asked", PAIRS)
@pytest.mark.parametrize("answered", PAIRS)
async def test_an_answer_is_nearer_than_what_has_nothing_to_do_with_it_across_languages(embedder, asked, answered):
    question = await embedder.embed_query(PAIRS[asked][0])
    answer, unrelated = await embedder.embed_passages([PAIRS[answered][1], PAIRS[answered][2]])
    assert question @ answer > question @ unrelated + 0.03


async def test_a_vector_does_not_depend_on_what_is_embedded_with_it(embedder):
    texts = [golden["text"] for golden in GOLDEN]
    together = await embedder.embed_passages(texts)
    backwards = await embedder.embed_passages(texts[::-1])
    assert np.array_equal(together, backwards[::-1])
    for text, vector in zip(texts[:6], together[:6], strict=True):
        assert np.array_equal((await embedder.embed_passages([text]))[0], vector)


async def test_questions_and_passages_have_prefixes_of_their_own(embedder, model):
    (passage,) = await embedder.embed_passages(["text"])
    assert np.allclose(passage, model.embed("passage: text"), atol=1e-6)
    assert np.allclose(await embedder.embed_query("text"), model.embed("query: text"), atol=1e-6)


async def test_the_local_space_is_what_it_returns(embedder):
    assert embedder.space == LOCAL_SPACE
    vectors = await embedder.embed_passages(["", "\0", "\ud800", "x" * 5000])
    assert vectors.shape == (4, LOCAL_SPACE.dimension)
    assert (await embedder.embed_passages([])).shape == (0, LOCAL_SPACE.dimension)


async def test_a_question_does_not_wait_behind_a_batch(embedder):
    batch = asyncio.ensure_future(embedder.embed_passages(["many words here " * 40] * 64))
    await asyncio.sleep(0)
    await embedder.embed_query("a question")
    assert not batch.done()
    batch.cancel()
    with pytest.raises(asyncio.CancelledError):
        await batch


async def test_closing_under_way_fails_what_waits_and_may_be_repeated(models_home, folder):
    opened = await LocalEmbedder.open_local(load_settings({}, home=str(models_home)))
    batch = asyncio.ensure_future(opened.embed_passages(["many words here " * 40] * 64))
    await asyncio.sleep(0.05)
    await opened.close()
    await opened.close()
    with pytest.raises(StrataError) as caught:
        await batch
    assert caught.value.code == "embedding_unavailable"
    with pytest.raises(StrataError):
        await opened.embed_query("late")


async def test_two_that_open_the_same_folder_share_one_model(models_home, folder, embedder):
    second = await LocalEmbedder.open_local(load_settings({}, home=str(models_home)))
    assert second._engine is embedder._engine
    assert embedder._engine.users == 2
    await second.close()
    assert embedder._engine.users == 1
    assert (await embedder.embed_query("still open")).shape == (384,)


async def test_the_last_to_close_ends_the_threads(tmp_path):
    embedder = await opened_folder(make_folder(tmp_path / "mine"))
    engine = embedder._engine
    await embedder.embed_passages(["cat"])
    await embedder.close()
    assert engine not in local._Engine._shared.values()
    with pytest.raises(RuntimeError):
        engine.passages.submit(print)


async def test_who_is_cancelled_while_it_opens_leaves_no_model_open(models_home, embedder, monkeypatch):
    loop, released, release = asyncio.get_running_loop(), asyncio.Event(), local._Engine.release

    def note(engine):
        release(engine)
        loop.call_soon_threadsafe(released.set)

    monkeypatch.setattr(local._Engine, "release", note)
    task = asyncio.ensure_future(LocalEmbedder.open_local(load_settings({}, home=str(models_home))))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.wait_for(released.wait(), 20)
    assert embedder._engine.users == 1


def test_a_converted_folder_is_used_as_it_is(models_home, folder):
    before = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    assert e5.prepare(models_home / "models") == folder
    assert {path.name: path.stat().st_mtime_ns for path in folder.iterdir()} == before
    assert sorted(before) == sorted(e5.FILES)
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]
    assert all(path.stat().st_mode & 0o444 == 0o444 for path in folder.iterdir())


def test_two_processes_may_convert_at_once(tmp_path):
    code = (
        "import sys, pathlib; from strata.providers.embeddings import e5; print(e5.prepare(pathlib.Path(sys.argv[1])))"
    )
    children = [
        subprocess.Popen([sys.executable, "-W", "error", "-c", code, tmp_path], stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    printed = {child.communicate(timeout=200)[0].strip() for child in children}
    assert [child.returncode for child in children] == [0, 0]
    (made,) = printed
    assert [path.name for path in tmp_path.iterdir()] == [Path(made).name]
    assert OnnxModel(Path(made)).tokens("query: hello") == 7


def test_a_folder_that_lacks_a_file_is_made_anew_and_what_a_crash_left_is_swept(tmp_path, folder, monkeypatch):
    monkeypatch.setattr(e5, "write_model", lambda weights, made: shutil.copytree(folder, made, dirs_exist_ok=True))
    half = tmp_path / folder.name
    half.mkdir()
    (half / "model.onnx").write_bytes(b"half")
    old, new = tmp_path / ".making-old", tmp_path / ".making-new"
    for left in (old, new):
        left.mkdir()
    os.utime(old, (0, 0))
    made = e5.prepare(tmp_path)
    assert sorted(path.name for path in made.iterdir()) == sorted(e5.FILES)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([new.name, folder.name])


@pytest.mark.parametrize("name", ["model.onnx", "model.bin", "tokenizer.json", "characters.json"])
async def test_a_converted_file_that_a_disk_damaged_is_said_with_what_to_do(tmp_path, folder, name):
    copy = tmp_path / "models" / folder.name
    shutil.copytree(folder, copy)
    with (copy / name).open("r+b") as file:
        file.truncate(1000)
    with pytest.raises(StrataError) as caught:
        await LocalEmbedder.open_local(load_settings({}, home=str(tmp_path)))
    assert caught.value.code == "embedding_model_missing"
    assert f"Delete {copy}" in caught.value.remedy


def test_a_conversion_that_fails_leaves_nothing(tmp_path, monkeypatch):
    def fail(weights, made):
        (made / "model.onnx").write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(e5, "write_model", fail)
    with pytest.raises(StrataError) as caught:
        e5.prepare(tmp_path)
    assert caught.value.code == "embedding_model_missing"
    assert "No space left" in caught.value.detail
    assert list(tmp_path.iterdir()) == []


def test_weights_that_are_not_the_pinned_ones_are_refused(tmp_path, monkeypatch):
    blob = tmp_path / e5.BLOB
    blob.write_bytes(b"E5S1 damaged")
    monkeypatch.setattr(e5, "find_blob", lambda: blob)
    with pytest.raises(StrataError) as caught:
        e5.prepare(tmp_path / "models")
    assert caught.value.code == "embedding_model_missing"
    assert "not the pinned file" in caught.value.detail


def test_a_missing_wheel_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(StrataError) as caught:
        e5.prepare(tmp_path / "models")
    assert caught.value.code == "embedding_model_missing"
    assert e5.WHEEL in caught.value.detail
    assert "STRATA_EMBEDDINGS=none" in caught.value.remedy


def test_a_home_that_cannot_be_written_is_said(tmp_path):
    (tmp_path / "models").write_text("a file in the way")
    with pytest.raises(StrataError) as caught:
        e5.prepare(tmp_path / "models")
    assert caught.value.code == "embedding_model_missing"
    assert "STRATA_HOME" in caught.value.remedy


WORDS = {"[UNK]": 0, "red": 1, "blue": 2, "cat": 3, "dog": 4}


INT64 = onnx.TensorProto.INT64


def make_folder(path, *, inputs=("input_ids", "attention_mask"), kind=INT64, external=False, scale=1.0):
    """A model whose states are rows of a table, one for each word."""
    path.mkdir(parents=True, exist_ok=True)
    helper = onnx.helper
    table = onnx.numpy_helper.from_array(scale * np.eye(5, 8, dtype=np.float32) + 0.01, "table")
    nodes = [helper.make_node("Gather", ["table", "input_ids"], ["last_hidden_state"])]
    graph = helper.make_graph(
        nodes,
        "words",
        [helper.make_tensor_value_info(name, kind, ["batch", "length"]) for name in inputs],
        [helper.make_tensor_value_info("last_hidden_state", onnx.TensorProto.FLOAT, ["batch", "length", 8])],
        [table],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    made.ir_version = 10
    onnx.save(made, path / "model.onnx", save_as_external_data=external, location="weights.bin", size_threshold=0)
    tokenizer = Tokenizer(models.WordLevel(WORDS, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(path / "tokenizer.json"))
    return path


async def opened_folder(path, **given):
    return await LocalEmbedder.open_folder(path, load_settings({}, home=str(path.parent), **given))


@pytest.mark.parametrize("external", [False, True])
async def test_a_folder_of_ones_own_embeds(tmp_path, external):
    path = make_folder(tmp_path / "mine", external=external)
    embedder = await opened_folder(path, embeddings_query_prefix="red ")
    assert embedder.space.provider == "folder"
    assert (embedder.space.model, embedder.space.dimension) == ("mine", 8)
    assert (embedder.space.pooling, embedder.space.max_tokens) == ("mean", 512)
    cat, red_cat = await embedder.embed_passages(["cat", "red cat"])
    assert np.allclose(await embedder.embed_query("cat"), red_cat)
    assert cat @ red_cat < 0.9
    await embedder.close()


async def test_the_first_state_is_taken_where_the_folder_asks_for_it(tmp_path):
    path = make_folder(tmp_path / "mine")
    (path / "1_Pooling").mkdir()
    (path / "1_Pooling" / "config.json").write_text('{"pooling_mode_cls_token": true}')
    embedder = await opened_folder(path)
    assert embedder.space.pooling == "first"
    one, two = await embedder.embed_passages(["red", "red cat"])
    assert np.array_equal(one, two)
    await embedder.close()


async def test_the_window_is_what_the_tokenizer_says(tmp_path):
    path = make_folder(tmp_path / "mine")
    tokenizer = Tokenizer.from_file(str(path / "tokenizer.json"))
    tokenizer.enable_truncation(2)
    tokenizer.save(str(path / "tokenizer.json"))
    embedder = await opened_folder(path)
    assert embedder.space.max_tokens == 2
    short, long = await embedder.embed_passages(["red cat", "red cat dog dog dog"])
    assert np.array_equal(short, long)
    await embedder.close()


@pytest.mark.parametrize("changed", ["weights", "tokenizer", "prefix", "name", "pooling"])
async def test_what_changes_vectors_changes_the_space(tmp_path, changed):
    path = make_folder(tmp_path / "mine", external=True)
    embedder = await opened_folder(path)
    before = embedder.space
    await embedder.close()
    given = {}
    if changed == "weights":
        make_folder(path, external=True, scale=2.0)
    elif changed == "tokenizer":
        (path / "tokenizer.json").write_text((path / "tokenizer.json").read_text().replace('"cat"', '"cow"'))
    elif changed == "prefix":
        given = {"embeddings_passage_prefix": "red "}
    elif changed == "name":
        path = path.rename(tmp_path / "other")
    else:
        (path / "1_Pooling").mkdir()
        (path / "1_Pooling" / "config.json").write_text('{"pooling_mode_cls_token": true}')
    embedder = await opened_folder(path, **given)
    assert embedder.space.fingerprint != before.fingerprint
    await embedder.close()


async def test_a_folder_serves_its_own_space_and_no_other(tmp_path):
    path = make_folder(tmp_path / "mine")
    embedders = Embedders(load_settings({}, home=str(tmp_path), embeddings=str(path)))
    embedder = await embedders.configured()
    assert await embedders.for_space(embedder.space) is embedder
    assert (await embedders.query_vector(embedder.space, "cat")).shape == (8,)
    assert await embedders.for_space(msgspec.structs.replace(embedder.space, revision="other")) is None
    assert embedders.describe().model == "mine"
    await embedders.close()


@pytest.mark.parametrize(
    ("inputs", "kind", "name"),
    [
        (("input_ids", "position_ids"), onnx.TensorProto.INT64, "position_ids of tensor(int64)"),
        (("input_ids",), onnx.TensorProto.INT32, "input_ids of tensor(int32)"),
    ],
)
async def test_a_model_that_wants_other_inputs_is_refused_by_name(tmp_path, inputs, kind, name):
    path = make_folder(tmp_path / "mine", inputs=inputs, kind=kind)
    with pytest.raises(StrataError) as caught:
        await opened_folder(path)
    assert caught.value.code == "embedding_model_missing"
    assert name in caught.value.detail


@pytest.mark.parametrize("missing", ["model.onnx", "tokenizer.json", "weights.bin"])
async def test_a_folder_without_a_file_is_refused_by_its_name(tmp_path, missing):
    path = make_folder(tmp_path / "mine", external=True)
    (path / missing).unlink()
    with pytest.raises(StrataError) as caught:
        await opened_folder(path)
    assert caught.value.code == "embedding_model_missing"
    assert missing in caught.value.detail


@pytest.mark.parametrize("damaged", ["model.onnx", "tokenizer.json"])
async def test_a_damaged_file_is_refused(tmp_path, damaged):
    path = make_folder(tmp_path / "mine")
    (path / damaged).write_bytes(b"\x00\xff damaged")
    with pytest.raises(StrataError) as caught:
        await opened_folder(path)
    assert caught.value.code == "embedding_model_missing"


async def test_a_folder_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(StrataError) as caught:
        await opened_folder(tmp_path / "nowhere")
    assert caught.value.code == "embedding_model_missing"


async def test_a_text_without_any_token_is_refused_and_not_divided_by(tmp_path):
    embedder = await opened_folder(make_folder(tmp_path / "mine"))
    with pytest.raises(StrataError) as caught:
        await embedder.embed_passages(["cat", " "])
    assert caught.value.code == "embedding_refused"
    assert (await embedder.embed_passages(["cat"])).shape == (1, 8)
    await embedder.close()


async def test_a_model_that_gives_zeros_is_refused(tmp_path):
    path = make_folder(tmp_path / "mine")
    made = onnx.load(path / "model.onnx")
    made.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(np.zeros((5, 8), np.float32), "table"))
    onnx.save(made, path / "model.onnx")
    with pytest.raises(StrataError) as caught:
        await opened_folder(path)
    assert caught.value.code == "embedding_refused"
