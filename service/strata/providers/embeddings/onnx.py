"""Run an ONNX encoder in this process: a folder with ``model.onnx`` and ``tokenizer.json``."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from strata.errors import EMBEDDING_MODEL_MISSING, EMBEDDING_REFUSED, StrataError
from strata.providers.embeddings.base import Vectors, well_formed

MAX_TOKENS = 512
"""Where a text is cut when the tokenizer does not say."""

_SENTENCE = "sentence_embedding"
_INPUTS = ("input_ids", "attention_mask", "token_type_ids")
_SPACES = re.compile(" {2,}")


class OnnxModel:
    """Tokenizer and session of one folder.

    Texts are run one by one: no padding, so a vector does not depend on what else is embedded with it,
    and one thread a run, so that runs do not disturb each other. Threads may share a model.

    ``characters.json``, where the folder has one, maps code points to what replaces them before
    tokenizing. The output ``sentence_embedding`` is taken as it is; else the hidden states are
    averaged, or the first is taken where ``1_Pooling/config.json`` asks for it. A text is cut where
    ``tokenizer.json`` says, else at 512 tokens.
    """

    def __init__(self, folder: Path) -> None:
        import onnxruntime
        from tokenizers import Tokenizer

        for name in ("model.onnx", "tokenizer.json"):
            if not (folder / name).is_file():
                raise StrataError(EMBEDDING_MODEL_MISSING, f"{folder} has no {name}.")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        # Fused skip connections take three times as long here as the plain nodes.
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
        try:
            self._session = onnxruntime.InferenceSession(
                str(folder / "model.onnx"), options, providers=["CPUExecutionProvider"]
            )
            self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
            self._characters = _characters(folder)
            pooling = _pooling(folder)
        except Exception as error:  # the libraries raise bare Exception
            raise StrataError(EMBEDDING_MODEL_MISSING, f"{folder} holds no model that can be read: {error}") from error
        self._inputs = _known_inputs(folder, self._session.get_inputs())
        truncation = self._tokenizer.truncation
        self.max_tokens: int = truncation["max_length"] if truncation else MAX_TOKENS
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(self.max_tokens)
        outputs = [item.name for item in self._session.get_outputs()]
        self._output = _SENTENCE if _SENTENCE in outputs else outputs[0]
        self.pooling = "model" if self._output == _SENTENCE else pooling

    def embed(self, text: str) -> Vectors:
        """Return the vector of one text, not normalised unless the model does so.

        Raises ``embedding_refused`` when the model cannot run on it, or gives no vector.
        """
        ids = np.array([self._ids(text)], np.int64)
        if not ids.size:
            raise StrataError(EMBEDDING_REFUSED, "The embedder finds no token in a text.")
        given = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
        try:
            states = self._session.run([self._output], {name: given[name] for name in self._inputs})[0][0]
        except Exception as error:  # onnxruntime's own classes have no common base but this
            words = f"The embedder cannot run on a text of {ids.size} tokens ({type(error).__name__})."
            raise StrataError(EMBEDDING_REFUSED, words) from error
        if states.ndim not in {1, 2}:
            raise StrataError(EMBEDDING_REFUSED, f"The output {self._output} of the model holds no vectors.")
        vector: Vectors = states if states.ndim == 1 else states[0] if self.pooling == "first" else states.mean(0)
        return vector

    def tokens(self, text: str) -> int:
        """Count the tokens of a text, special ones included, up to where it is cut."""
        return len(self._ids(text))

    def _ids(self, text: str) -> list[int]:
        text = well_formed(text)
        if self._characters is not None:
            text = _SPACES.sub(" ", text.translate(self._characters))
        ids: list[int] = self._tokenizer.encode(text).ids
        return ids


def _known_inputs(folder: Path, inputs: list[Any]) -> list[str]:
    for item in inputs:
        if item.name not in _INPUTS or item.type != "tensor(int64)":
            raise StrataError(
                EMBEDDING_MODEL_MISSING,
                f"{folder}: the model wants the input {item.name} of {item.type}; "
                f"what can be given is {', '.join(_INPUTS)} of tensor(int64).",
            )
    return [item.name for item in inputs]


def _characters(folder: Path) -> dict[int, str] | None:
    path = folder / "characters.json"
    return msgspec.json.decode(path.read_bytes(), type=dict[int, str]) if path.is_file() else None


def _pooling(folder: Path) -> str:
    path = folder / "1_Pooling" / "config.json"
    config = msgspec.json.decode(path.read_bytes(), type=dict[str, Any]) if path.is_file() else {}
    return "first" if config.get("pooling_mode_cls_token") else "mean"
