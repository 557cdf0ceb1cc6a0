"""Encoding on ONNX Runtime: PyTorch's vectors, from a graph that is exported once, or one clear error."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer
from tests.conftest import WORDS, make_encoder
from tests.prepare import test_encode

from distilbench.encoder import EncoderSpec, encode
from distilbench.errors import InputError
from distilbench.prepare import encode as encode_module
from distilbench.prepare import onnx as module
from distilbench.prepare.onnx import GRAPH, WEIGHTS, load_onnx, onnx_artifact
from distilbench.store import ArtifactStore

for package in ("onnxruntime", "onnxscript", "onnx"):
    pytest.importorskip(package, reason=f"the onnx extra is not installed: no {package}")

# 2 to 64 tokens with the special ones (the encoder's limit is 64), and one that is cut there.
SENTENCES = tuple(" ".join((WORDS * 3)[i : i + i]) for i in range(63)) + (" ".join(WORDS * 4),)
