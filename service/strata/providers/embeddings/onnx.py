"""Run an ONNX encoder in this process: a folder with ``model.onnx`` and ``tokenizer.json``."""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from strata.errors import EMBEDDING_MODEL_MISSING, StrataError
from strata.providers.embeddings.base import EmbeddingSpace, Vectors, checked

_SPACES = re.compile(" {2,}")


class OnnxModel:
    """Tokenizer and session of one folder. Texts are run one by one: no padding, so a vector does not
    depend on what else is embedded with it, and one thread a run, so that runs do not disturb each other.

    ``characters.json``, where the folder has one, maps code points to what replaces them before
    tokenizing. The output ``sentence_embedding`` is taken as it is; else the hidden states are
    averaged, or the first is taken where ``1_Pooling/config.json`` asks for it.
    """

    def __init__(self, folder: Path, max_tokens: int = 512) -> None:
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
        except Exception as error:  # the libraries raise bare Exception
            raise StrataError(EMBEDDING_MODEL_MISSING, f"{folder} holds no model that can be read: {error}") from error
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(max_tokens)
        self._characters = _characters(folder)
        self._inputs = [item.name for item in self._session.get_inputs()]
        names = [item.name for item in self._session.get_outputs()]
        self._output = "sentence_embedding" if "sentence_embedding" in names else names[0]
        self.pooling = "model" if self._output == "sentence_embedding" else _pooling(folder)

    def embed(self, text: str) -> Vectors:
        """Return the vector of one text, not normalised unless the model does so."""
        if self._characters is not None:
            text = _SPACES.sub(" ", text.translate(self._characters))
        ids = np.array([self._tokenizer.encode(text).ids], np.int64)
        given = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
        states = self._session.run([self._output], {name: given[name] for name in self._inputs})[0][0]
        vector: Vectors = states if states.ndim == 1 else states[0] if self.pooling == "first" else states.mean(0)
        return vector

    def tokens(self, text: str) -> int:
        """Count the tokens of a text, special ones included, up to where it is cut."""
        if self._characters is not None:
            text = _SPACES.sub(" ", text.translate(self._characters))
        return len(self._tokenizer.encode(text).ids)


def _characters(folder: Path) -> dict[int, str] | None:
    path = folder / "characters.json"
    return msgspec.json.decode(path.read_bytes(), type=dict[int, str]) if path.is_file() else None


def _pooling(folder: Path) -> str:
    path = folder / "1_Pooling" / "config.json"
    config: dict[str, Any] = msgspec.json.decode(path.read_bytes()) if path.is_file() else {}
    return "first" if config.get("pooling_mode_cls_token") else "mean"
