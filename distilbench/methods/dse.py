"""DSE: sentence embeddings distilled from a cross-encoder's scores of sentence pairs (AAAI 2020).

One student reads both sentences apart, a head scores the two embeddings; both learn the cross-encoder's logits T and the
labels R of a pair task. Axes: B pairs, D width of all pooled layers, d output dimension, C outputs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules.dense import Dense
from sentence_transformers.base.modules.transformer import Transformer
from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask
from sentence_transformers.sentence_transformer.modules import Pooling, WeightedLayerPooling
from torch import Tensor, nn

from distilbench.data.corpus import Corpus
from distilbench.data.requirements import Requirements
from distilbench.encoders.encoder import EncoderSpec
from distilbench.encoders.pair_head import (
    OUTPUTS,
    HeadKind,
    PairHead,
    label_loss,
    save_pair_head,
    score_pairs,
    unit_target,
)
from distilbench.encoders.student import student_layers, student_width
from distilbench.errors import InputError
from distilbench.evaluation.pairs import pair_scores
from distilbench.methods.method import Possible
from distilbench.methods.parts.encoder_method import EncoderMethod, EncoderParams, freeze_embeddings
from distilbench.methods.parts.losses import squared_distance
from distilbench.methods.parts.starts import UntargetedParams
from distilbench.prepare.prepared import Prepared
from distilbench.records import Score
from distilbench.training.params import TrainedParams, check_enough
from distilbench.training.phases import Phase, epoch_steps

PAPER_LAYERS = 4
_BEFORE = "cls_token_embeddings"
"""What `Pooling` in mode ("cls", "mean") puts before the mean: here the layers pooled so far."""


class DSEParams(TrainedParams, EncoderParams, UntargetedParams):
    """Hyper-parameters; the defaults are the paper's."""

    task: str
    """Name of the pair task."""
    alpha: float = Field(default=0.5, ge=0, le=1)
    """Weight of the cross-encoder's logits against the labels: 0 learns from labels alone, 1 from logits alone."""
    head: HeadKind = "concat"
    hidden: int = Field(default=512, ge=1)
    """Hidden units of the head `concat`."""
    pooled_layers: int = Field(default=0, ge=0)
    """How many of the last layers are pooled; the student must have as many. 0: 4, or all where it has fewer."""
    frozen: bool = False
    """Train only the head and the projection, on features that are computed once, without dropout."""
    epochs: float = Field(default=8, gt=0)
    """Passes over the task's training pairs."""


def last_layers_pooling(transformer: Transformer, layers: int) -> list[nn.Module]:
    """Modules that follow `transformer` and put [mean of layer -layers, ..., mean of the last] in `sentence_embedding`,
    B x (layers * width) (DSE, section 3.4).

    Each mean is over the tokens without CLS and padding. SEP is kept, as in the paper, which leaves out CLS alone, and in
    the released code. Nothing in it is trained. It is made of sentence-transformers' own modules, which an exported student
    is loaded by without `trust_remote_code=True` and without this package.
    """
    config, width = transformer.model.config, int(transformer.get_embedding_dimension())
    available = int(config.num_hidden_layers)
    if layers > available:
        raise InputError(
            f"pooled_layers is {layers}, but the student has {available} layers; expected at most {available}"
        )
    config.output_hidden_states = True  # kept in the exported config.json
    modules: list[nn.Module] = []
    if transformer.tokenizer.cls_token is not None:
        modules.append(MultiVectorMask([transformer.tokenizer.cls_token], skiplist_tasks=["query", "document"]))
    for i, layer in enumerate(range(available - layers + 1, available + 1)):
        if i:  # an identity matrix hands `sentence_embedding` on under the name that the next pooling puts first
            so_far = i * width
            identity = torch.eye(so_far)
            modules.append(Dense(so_far, so_far, False, nn.Identity(), identity, module_output_name=_BEFORE))
        only_this = torch.zeros(available + 1 - layer)  # the weights of this layer and of those above it
        only_this[0] = 1
        modules.append(WeightedLayerPooling(width, available, layer, nn.Parameter(only_this)))
        # The module's own width is its number of modes times this.
        modules.append(Pooling((i + 1) * width // 2, ("cls", "mean")) if i else Pooling(width, "mean"))
    return [module.requires_grad_(False) for module in modules]


class DSE(EncoderMethod):
    """Siamese student, means of its last layers, a linear layer to d where d is not their width, a head for pairs.

    Trains a Siamese student encoder and a head for pairs. Reads a labelled pair task, and a cross-encoder (given, or fine-
    tuned here). Source: Barkan et al., AAAI 2020.
    """

    params_type = DSEParams
    title: ClassVar[str] = "DSE"
    params: DSEParams

    def __init__(self, params: DSEParams, prepared: Prepared, device: str) -> None:
        super().__init__(params, prepared, device)
        if prepared.pair_task is None or prepared.pair_task.name != params.task:
            raise ValueError(f"DSE needs the pair task {params.task} in `prepared`")
        if params.alpha and prepared.logits_PC is None:
            raise ValueError("DSE with alpha above 0 needs the cross-encoder's logits in `prepared`")
        self.task = prepared.pair_task
        self.train_split = self.task.splits["train"]
        self.target_P = unit_target(self.task, self.train_split.target_P)
        transformer = self.student[0]
        layers = params.pooled_layers or min(PAPER_LAYERS, int(transformer.model.config.num_hidden_layers))
        pooling = last_layers_pooling(transformer, layers)
        self.student = SentenceTransformer(modules=[transformer, *pooling], device=device).eval()
        self.student.requires_grad_(False)
        transformer.requires_grad_(not params.frozen)
        if params.freeze_embeddings:
            freeze_embeddings(self.student)
        self.width *= layers
        self._place_N = np.full(len(self.tokens.offsets) - 1, -1)
        self._features_MD = np.empty((0, self.width), dtype=np.float32)
        """Of a frozen student: the features of the rows that were asked for, and the place of each row in them."""
        if params.output_dim > self.width:
            raise InputError(
                f"output_dim is {params.output_dim}; expected at most {self.width}, the width of {layers} pooled layers"
            )
        if params.output_dim < self.width:
            self.projection = self.linear(params.output_dim)
            self.start_projection(prepared.train)
        self.head = PairHead(params.head, params.output_dim, params.hidden, OUTPUTS[self.task.kind])
        self.to(device)

    @classmethod
    def native_dim(cls, teacher: EncoderSpec, student: str) -> int:
        """The width of the paper's four pooled layers, or of all that the student has."""
        return student_width(student, teacher) * min(PAPER_LAYERS, student_layers(student, teacher))

    @classmethod
    def needs(cls, possible: Possible) -> Requirements:
        return Requirements(pair_tasks=tuple(possible("task")), logits=max(possible("alpha")) > 0)

    @classmethod
    def check_corpus(cls, possible: Possible, corpus: Corpus, native: int) -> None:
        super().check_corpus(possible, corpus, native)
        (name, *others), tasks = dict.fromkeys(possible("task")), {task.name: task for task in corpus.pair_tasks}
        if others:
            told = ", ".join([name, *others])
            raise InputError(f"task: {told}: scores of different tasks cannot be compared; expected one task")
        if name not in tasks:
            raise InputError(
                f"task: {name}: the corpus has no such pair task; expected one of {', '.join(tasks) or 'none'}"
            )
        splits = tasks[name].splits
        for split in ("train", "dev"):
            if split not in splits:
                raise InputError(f"task: {name}: it has no {split} split; it has {', '.join(splits)}")
        check_enough("batch_size", max(possible("batch_size")), len(splits["train"].target_P), "training pairs")

    @classmethod
    def variant(cls, params: dict[str, Any]) -> str:
        parts = [str(params["task"]), f"alpha {params.get('alpha', 0.5):g}"]
        parts += ["dot"] * (params.get("head") == "dot") + ["frozen"] * bool(params.get("frozen"))
        return ", ".join(parts)

    def phases(self) -> list[Phase]:
        p, examples = self.params, len(self.target_P)
        steps = epoch_steps(p.epochs, examples, p.batch_size)
        return [Phase("distil", examples, steps, p.batch_size, p.lr, self.loss)]

    def loss(self, index_B: NDArray[np.int64]) -> Tensor:
        """alpha ||S - T||^2 + (1 - alpha) label loss, means over the batch (DSE, equation 2 and section 3.5)."""
        split, alpha = self.train_split, self.params.alpha
        both = self.outputs(np.concatenate([split.left_P[index_B], split.right_P[index_B]]))
        s_BC = self.head(both[: len(index_B)], both[len(index_B) :]).float()
        loss = s_BC.new_zeros(())
        if alpha > 0:
            assert self.prepared.logits_PC is not None
            t_BC = torch.from_numpy(self.prepared.logits_PC[index_B]).to(self.device)
            loss = loss + alpha * squared_distance(s_BC, t_BC)
        if alpha < 1:
            target_B = torch.from_numpy(self.target_P[index_B]).to(self.device)
            loss = loss + (1 - alpha) * label_loss(s_BC, target_B, self.task.kind)
        return loss

    def pooled(self, rows: NDArray[np.int64] | Tensor) -> Tensor:
        """Concatenated means, B x D, in float32; with gradients unless the student is frozen."""
        if not self.params.frozen or isinstance(rows, Tensor):
            return super().pooled(rows)
        new = np.unique(rows[self._place_N[rows] < 0])
        if len(new):
            self._place_N[new] = len(self._features_MD) + np.arange(len(new))
            self._features_MD = np.concatenate([self._features_MD, self.states(new)])
        return torch.from_numpy(self._features_MD[self._place_N[rows]]).to(self.device)

    def encode(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        if not self.params.frozen:
            return super().encode(rows)
        with torch.inference_mode():
            return self.project(self.pooled(rows)).float().cpu().numpy()

    def pair_outputs(self, left_P: NDArray[np.int64], right_P: NDArray[np.int64]) -> NDArray[np.float32]:
        """The head's outputs of pairs of corpus rows, P x C, dropout off."""
        rows, where = np.unique(np.concatenate([left_P, right_P]), return_inverse=True)
        left, right = np.split(where, 2)
        return score_pairs(self.head, torch.from_numpy(self.embed(rows)).to(self.device), left, right)

    def task_scores(self, split: Literal["dev", "test"]) -> list[Score]:
        """Pearson and Spearman, or accuracy (and F1), of the head on the task's split; none where it has no such split."""
        if split not in self.task.splits:
            return []
        pairs = self.task.splits[split]
        return pair_scores(self.task, split, self.pair_outputs(pairs.left_P, pairs.right_P))

    def export(self, folder: Path) -> None:
        """A sentence-transformers folder, and the pair head beside it (`load_pair_scorer` reads both)."""
        super().export(folder)
        save_pair_head(folder, self.head, self.task)
