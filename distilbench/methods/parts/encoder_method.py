"""What every method that trains an encoder of its own has in common: student, mean pooling, an optional projection.

Axes: B batch, D width of the student, d output dimension.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Self, cast

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules.dense import Dense
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from distilbench.encoders.encoder import EncoderSpec
from distilbench.encoders.encoding import TOKENS_PER_BATCH, padded, token_budget_batches
from distilbench.encoders.static import StaticStudent, TableCode, save_static
from distilbench.encoders.student import is_static, load_student, student_width
from distilbench.errors import InputError
from distilbench.heartbeat import beat
from distilbench.methods.method import Method, Possible, fit_on_device
from distilbench.methods.parts.losses import coded
from distilbench.methods.parts.packed import PACKED_TOKENS, can_pack, filled_parts, packed, packed_means
from distilbench.methods.parts.packed_device import DeviceTokens, filled_tokens
from distilbench.methods.parts.starts import Targets, principal_axes, regression, spread
from distilbench.prepare.prepared import Prepared
from distilbench.training.params import CodedParams

TRAINING_TOKENS = {"cpu": 512, "cuda": 65536}
"""Padded tokens of one forward pass in training. A batch is drawn at random and cut into parts of similar length.
Where `can_pack` says so a CPU reads it without padding instead, and so does a GPU where steps are replayed."""
STATIC_ROWS = 4096
"""Sentences that a static student embeds at a time."""


def freeze_embeddings(student: SentenceTransformer) -> None:
    """Stop the training of a transformer's embedding layer (words, positions, and their LayerNorm)."""
    model = student[0].model
    embeddings = getattr(model, "embeddings", None)
    for parameter in (embeddings or model.get_input_embeddings()).parameters():
        parameter.requires_grad_(False)


class EncoderParams(CodedParams):
    """How the student's encoder is trained, whatever its loss; `sif` and `table` are those of a static student."""

    sif: float = Field(default=0.001, ge=0)
    """The weight that a token starts with is sif / (sif + its share of all tokens of the training sentences), as in smooth
    inverse frequency (Arora et al. 2017); 0: every weight starts at 1."""
    table: TableCode = "float32"
    """What the table of the exported student is stored as; int8 and int4 have a scale for each token."""
    student: str | None = None
    """Where the student starts, as `--student` has it, which it takes the place of; students with this parameter compete
    with those of the same start."""
    dropout: bool = True
    """Whether the encoder's dropout acts in training."""
    freeze_embeddings: bool = False
    """Whether the word and position embeddings stay as they are: most of a small encoder's parameters. A static student has
    nothing else, and is trained all the same."""


START_SENTENCES, RIDGE = 20_000, 0.1
"""Training sentences at most on which a static student's start is fitted; the weight of the squared map in that, for each
sentence and beside the variance of the student's vectors."""
_start_states: deque[tuple[Prepared, NDArray[np.int64], NDArray[np.float32]]] = deque(maxlen=8)
"""Start states that a process keeps for its next trials, with what they are of: one of each student."""


class EncoderMethod(Method):
    """A student encoder, mean pooling and, where `projection` is set, a linear layer to d."""

    trains_encoder: ClassVar[bool] = True
    costly: ClassVar[tuple[str, ...]] = ("student", "output_dim", "table")
    centred: ClassVar[bool] = True
    """Whether the targets are centred: then so are the vectors of single tokens that a static student starts from."""

    def __init__(self, params: Any, prepared: Prepared, device: str) -> None:
        super().__init__(params, prepared, device)
        if prepared.tokens is None:
            raise ValueError(f"{self.title} needs the student's token arrays in `prepared`")
        self.tokens = prepared.tokens
        self.static: StaticStudent | None = None
        self.student: Any
        """What is trained: a SentenceTransformer, or a static student, whose own width is the one asked for."""
        if is_static(prepared.student):
            self.student = self.static = self._static_student()
            self.width = self.static.width
        else:
            self.student = load_student(prepared.student, prepared.teacher, device, prepared.pooling, prepared.skipped)
            if getattr(params, "freeze_embeddings", False):
                freeze_embeddings(self.student)
            self.pad = self.student.tokenizer.pad_token_id or 0
            self.width = int(self.student[0].get_embedding_dimension())
        self.projection: Dense | None = None
        self.device_tokens: DeviceTokens | None = None
        self._batch_tokens = 0
        self.micro_batches = 1
        """In how many parts at least a batch is read in training. From 2 on a part's states are not kept: the backward pass
        reads it again and adds its gradient to that of the others, so that the memory is that of one part."""

    def _static_student(self) -> StaticStudent:
        pca, vectors = self.prepared.pca, self.prepared.vectors
        axes_Dd, mean_D = pca.axes_DD[:, : self.trained_dim], pca.mean_D if self.centred else np.zeros_like(pca.mean_D)
        start = self.untrained_static()
        table_Vd = self.fitted_table(start, lambda rows: ((vectors.take(rows) - mean_D) @ axes_Dd).astype(np.float32))
        weight_V = start.weights.detach().numpy()[:, 0]
        return StaticStudent(table_Vd, start.tokenizer_file, weight_V, stored=self.params.table)

    def untrained_static(self) -> StaticStudent:
        """The tokens' vectors as they are prepared, with the weights that they start with."""
        start, sif = self.prepared.static, self.params.sif
        if start is None:
            raise ValueError(f"{self.title} needs the vectors of single tokens in `prepared`")
        count_V = np.bincount(self.tokens.flat(self.prepared.train)[0], minlength=len(start.vectors_VD))
        weight_V = sif / (sif + count_V / max(1, count_V.sum())) if sif else np.ones(len(count_V))
        vectors_VD = start.vectors_VD / weight_V[:, None] if start.trained else np.array(start.vectors_VD)
        if self.centred:  # so that sentences have no mean
            vectors_VD -= np.average(vectors_VD, axis=0, weights=count_V * weight_V)
        return StaticStudent(vectors_VD, start.tokenizer, weight_V)

    def fitted_table(self, untrained: StaticStudent, targets: Targets) -> NDArray[np.float32]:
        """The vectors of tokens that a static student starts from, V x d: the untrained ones after a regression from training
        sentences' means of them to the targets; in the size that they had, which learning rates fit."""
        rows = self.prepared.train
        sample = rows[spread(len(rows), START_SENTENCES)]
        with torch.inference_mode():
            own_ND = untrained(*self.tokens.flat(sample)).numpy()
        ridge = RIDGE * len(own_ND) * float(own_ND.var())
        vectors_VD = untrained.vectors.detach().numpy()
        table_Vd = vectors_VD @ regression(own_ND, targets(sample), bias=False, ridge=ridge).weight_Dd
        table_Vd *= np.linalg.norm(vectors_VD) / np.linalg.norm(table_Vd)
        return table_Vd.astype(np.float32)

    @property
    def trained_dim(self) -> int:
        """The width that a static student has: the one that is learned."""
        return int(self.params.output_dim)

    def row_parameters(self) -> Sequence[nn.Parameter]:
        return [] if self.static is None else list(self.static.parameters())

    def halve_micro_batches(self) -> bool:
        """Twice as many parts: the same loss and gradients, for one more forward pass. A static student has no such parts."""
        if self.static is not None:
            return False
        self.micro_batches *= 2
        return True

    def train(self, mode: bool = True) -> Self:
        """Training mode, in which the encoder's dropout acts only where `params.dropout` is set."""
        super().train(mode)
        if not getattr(self.params, "dropout", True):
            self.student.eval()
        return self

    def linear(self, d: int, activation: nn.Module | None = None) -> Dense:
        """A randomly drawn layer from the student's width to `d`."""
        return Dense(self.width, d, activation_function=activation or nn.Identity())

    def start_states(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Pooled states of corpus rows, N x D, by the student as it is before any training.

        They are kept for the next trial of this process, which starts from the same student.
        """
        for prepared, rows_N, states_ND in _start_states:
            if prepared is self.prepared and states_ND.shape[1] == self.width and np.array_equal(rows_N, rows):
                return states_ND
        _start_states.append((self.prepared, rows, self.states(rows)))
        return _start_states[-1][2]

    def start_projection(self, rows_N: NDArray[np.int64], targets: Targets | None = None) -> None:
        """Set the projection as `projection_start` says, from a sample of rows and the student before its training.

        `targets` is needed by a regression alone.
        """
        p = self.params
        if self.projection is None or p.projection_start == "random":
            return
        chosen = rows_N[spread(len(rows_N), p.start_sentences)]
        states_ND, layer = self.start_states(chosen), cast(nn.Linear, self.projection.linear)
        if p.projection_start == "pca":
            principal_axes(states_ND, layer.out_features).copy_to(layer)
        else:
            assert targets is not None
            regression(states_ND, targets(chosen)).copy_to(layer)

    def states(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Pooled states of corpus rows as the student is now, N x D, without the projection, dropout off."""
        projection, self.projection = self.projection, None
        try:
            return EncoderMethod.encode(self, rows)
        finally:
            self.projection = projection

    @classmethod
    def native_dim(cls, teacher: EncoderSpec, student: str) -> int:
        return student_width(student, teacher)

    @classmethod
    def check_student(cls, possible: Possible, student: str, native: int) -> None:
        """No tanh where the student is static."""
        if is_static(student) and "activation" in cls.params_type.model_fields and "tanh" in possible("activation"):
            raise InputError("--student static: activation: tanh; expected identity, since no layer follows the table")

    @classmethod
    def check_native(cls, possible: Possible, native: int) -> None:
        """Every output dimension is the student's own, for a method without projection."""
        for d in possible("output_dim"):
            if d != native:
                raise InputError(
                    f"output_dim: {d}: {cls.title} has no projection; expected {native}, the student's width (`native`)"
                )

    def over_parts(
        self, rows: NDArray[np.int64], budget: int, run: Callable[[dict[str, Tensor]], Tensor], pack: bool = False
    ) -> Tensor:
        """`run` on parts of `rows` of similar length, padded or packed, joined in the order of `rows`."""
        lengths = self.tokens.lengths_of(rows)
        again = self.micro_batches > 1 and torch.is_grad_enabled()
        if self.micro_batches > 1:
            at_once = int(lengths.sum()) if pack else len(rows) * int(lengths.max(initial=1))
            budget = max(1, min(budget, at_once) // self.micro_batches)
        parts = (filled_parts if pack else token_budget_batches)(lengths, budget)

        def fresh(part: dict[str, Tensor]) -> Tensor:
            # Modules leave their outputs, and DSE's another mask, in what they are given: kept, and read the second time.
            return run(dict(part))

        read = partial(checkpoint, fresh, use_reentrant=False) if again else run
        outs = []
        for part in parts:
            beat()  # all sentences of the data take a slow encoder longer than a worker may be silent
            ids = [self.tokens[int(rows[i])] for i in part]
            outs.append(read(packed(ids) if pack else padded(ids, self.pad, self.device)))
        back = np.empty(len(rows), dtype=np.int64)
        back[np.concatenate(parts)] = np.arange(len(rows))
        return torch.cat(outs)[torch.from_numpy(back).to(outs[0].device)]

    def batch_shape(self, rows: NDArray[np.int64]) -> int | None:
        """The tokens that a batch of these rows is filled up to, so that its step can be replayed; None where it cannot.

        The next batch of rows on the device is of this shape.
        """
        readable = self.device == "cpu" or fit_on_device(self.prepared.vectors, self.device)
        if not readable or self.static is not None or self.micro_batches > 1 or not can_pack(self.student):
            return None
        self._batch_tokens = filled_tokens(int(self.tokens.lengths_of(rows).sum()))
        return self._batch_tokens

    def pooled_on_device(self, rows_B: Tensor, *, with_embeddings: bool = False) -> Tensor:
        """`pooled` of rows whose numbers are on the device, after those of the embedding layer where they are asked for."""
        if self.device_tokens is None:
            self.device_tokens = DeviceTokens(self.tokens, self.pad, self.device)
        return self.device_tokens.means(self.student, rows_B, self._batch_tokens, with_embeddings)

    def pooled(self, rows: NDArray[np.int64] | Tensor) -> Tensor:
        """Mean-pooled student states with gradients, B x D, in float32."""
        if isinstance(rows, Tensor):
            return self.pooled_on_device(rows)
        if self.static is not None:
            return self.static(*self.tokens.flat(rows)).float()
        if self.device == "cpu" and can_pack(self.student):
            return self.over_parts(rows, PACKED_TOKENS, partial(packed_means, self.student), pack=True).float()
        return self.over_parts(rows, TRAINING_TOKENS[torch.device(self.device).type], self.read).float()

    def read(self, part: dict[str, Tensor]) -> Tensor:
        """Pooled states of a padded batch of token ids."""
        pooled_BD: Tensor = self.student(part)["sentence_embedding"]
        return pooled_BD

    def project(self, pooled_BD: Tensor) -> Tensor:
        """The layer to d, B x d; the states themselves where there is none."""
        if self.projection is None:
            return pooled_BD
        return self.projection({"sentence_embedding": pooled_BD})["sentence_embedding"]

    def outputs(self, rows: NDArray[np.int64] | Tensor) -> Tensor:
        """The student's vectors with gradients, B x d, as they are stored."""
        return self.as_stored(self.project(self.pooled(rows)))

    def as_stored(self, vectors_Bd: Tensor) -> Tensor:
        """Vectors as the code that `params.bits` names stores them, each of its own norm, with gradients."""
        bits = getattr(self.params, "bits", None)  # a method of a user's own may have no such parameter
        if bits is None or bits == 32:
            return vectors_Bd
        return coded(vectors_Bd, bits) * vectors_Bd.norm(dim=-1, keepdim=True)

    def encode(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Vectors of corpus rows as the method is now, N x d, dropout off; in bfloat16 on a GPU, and where `precision` says
        so."""
        if self.static is not None:
            return self._encode_static(self.static, rows)
        training, device = self.training, torch.device(self.device).type
        in_half = device == "cuda" or getattr(self.params, "precision", "") == "bf16"
        self.eval()
        try:
            with torch.inference_mode(), torch.autocast(device, dtype=torch.bfloat16, enabled=in_half):
                pooled = self.over_parts(rows, TOKENS_PER_BATCH[device], self.read)
                return self.project(pooled.float()).float().cpu().numpy()
        finally:
            self.train(training)

    def _encode_static(self, static: StaticStudent, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        parts = [np.empty((0, self.width), dtype=np.float32)] if not len(rows) else []
        with torch.inference_mode():
            for start in range(0, len(rows), STATIC_ROWS):
                beat()
                mean_Bd = static(*self.tokens.flat(rows[start : start + STATIC_ROWS]))
                parts.append(self.project(mean_Bd).float().cpu().numpy())
        return np.concatenate(parts)

    def embed(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Student vectors of corpus rows, of a static student at unit norm as it is exported."""
        return self.unit(self.encode(rows))

    def unit(self, vectors_Nd: NDArray[np.float32]) -> NDArray[np.float32]:
        """Vectors at unit norm where the student is static, else as they are."""
        if self.static is None:
            return vectors_Nd
        return functional.normalize(torch.from_numpy(vectors_Nd), dim=-1).numpy()

    def layers_after_pooling(self) -> Sequence[nn.Module]:
        """The modules that follow the pooling in the exported model."""
        return [] if self.projection is None else [self.projection]

    def export(self, folder: Path) -> None:
        """Encoder, pooling, and the layers after it, with the student's prompts; of a static student its table, these layers,
        and unit norm."""
        after = list(self.layers_after_pooling())  # some are made with the student, so before it leaves the device
        after = [layer.cpu() for layer in after]
        if self.static is not None:
            save_static(self.static, after, folder, self.prepared.student_prompts)
            return
        model = SentenceTransformer(modules=[*self.student.cpu(), *after], device="cpu")
        model.max_seq_length = self.student.max_seq_length
        if self.prepared.student_prompts is not None:
            self.prepared.student_prompts.keep_in(model)
        model.save(str(folder), create_model_card=False)
