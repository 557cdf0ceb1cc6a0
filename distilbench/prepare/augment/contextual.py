"""Words replaced by what a masked language model would write in their place: nlpaug's ContextualWordEmbsAug.

nlpaug draws for a list of sentences from one stream of random numbers and lets its models attend to the padding, so that
a copy depends on the sentences beside it. Here every draw is seeded by what it is for, and batches are masked, and
made of similar lengths.
"""

# mypy: disable-error-code="misc"
# nlpaug tells no types, hence subclasses of Any.

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from distilbench.encoders.encoder import default_device, padded, readable_tokenizer, token_budget_batches
from distilbench.errors import InputError
from distilbench.prepare.augment.operation import Copies, Operation, versions
from distilbench.prepare.augment.pretrained import Pretrained
from distilbench.prepare.augment.seeding import random_states_kept, seed_generators

STEP = 1
ROLE = "augmentation contextual"
FAMILIES = {"bert": "bert", "distilbert": "bert", "roberta": "roberta"}
"""`model_type` of a config.json -> the family whose word pieces nlpaug understands."""

TOKENS_PER_BATCH = {"cpu": 1024, "cuda": 8192}
"""Padded tokens of one forward pass; the logits of 8,192 tokens over 30,000 word pieces take 1 GB."""

_CANDIDATES = 10  # nlpaug's: one of ten words drawn by probability


@dataclass(frozen=True)
class Contextual(Operation):
    """`share` of a sentence's tokens, rounded up and at most 10, one after the other, by one of the `top_k` likeliest.

    An uncased model writes lower case. A copy that would hold an unknown token is none.
    """

    name: ClassVar[str] = "contextual"
    uses_gpu: ClassVar[bool] = True
    model: Pretrained
    share: float = 0.3
    top_k: int = 100

    def identity(self) -> dict[str, Any]:
        """The model's checksums, versions, share and `top_k`."""
        return {
            "operation": self.name,
            "step": STEP,
            "share": self.share,
            "top_k": self.top_k,
            "packages": versions("nlpaug", "torch", "transformers"),
            "model": self.model.identity(),
        }

    def check(self) -> None:
        """The model is there, of a family that nlpaug understands."""
        self._family()

    def _family(self) -> str:
        kind = self.model.config().get("model_type")
        if kind not in FAMILIES:
            raise InputError(
                f"{ROLE}: {self.model.name!r} is of type {kind!r}; expected a masked language model of type "
                f"{', '.join(FAMILIES)}"
            )
        return FAMILIES[kind]

    def load(self) -> Copies:
        """The model on a GPU where there is one, in float32."""
        from transformers.utils.logging import disable_progress_bar

        family = self._family()
        disable_progress_bar()
        readable_tokenizer(self.model.source, f"{ROLE} {self.model.name!r}")
        augmenter = _augmenter(family, self.model.source, self.share, self.top_k)
        tokenizer = augmenter.model.tokenizer

        def copies(sentences: Sequence[str], seed: int) -> list[str]:
            import torch

            texts = [""] * len(sentences)
            rows = [row for row, sentence in enumerate(sentences) if sentence.strip()]
            if not rows:
                return texts
            augmenter.seed = augmenter.model.seed = seed
            with random_states_kept(), torch.random.fork_rng(devices=[]):
                changed = augmenter.substitute([sentences[row].strip() for row in rows])
            for row, copy in zip(rows, changed, strict=True):
                texts[row] = "" if tokenizer.unk_token in copy else copy.strip()
            return texts

        return copies


def _augmenter(family: str, source: str, share: float, top_k: int) -> Any:
    import torch
    from nlpaug.augmenter.word import ContextualWordEmbsAug
    from nlpaug.model import lang_models

    language_model: Any = {"bert": lang_models.Bert, "roberta": lang_models.Roberta}[family]
    word_prefix = {"bert": "", "roberta": lang_models.Roberta.SUBWORD_PREFIX}[family]

    class SeededModel(language_model):
        seed = 0

        # nlpaug asks the tokenizer for methods that its fast class has lost in transformers 5.
        def token2id(self, token: str) -> int:
            return int(self.tokenizer.convert_tokens_to_ids(token))

        def id2token(self, _id: int) -> str:
            return str(self.tokenizer.convert_ids_to_tokens(_id))

        def predict(self, texts: list[str], target_words: list[str], n: int = 1) -> list[list[str]]:
            """One word, or none, for the mask in each text, other than the word that was there."""
            limit = self.model.config.max_position_embeddings - 2  # RoBERTa's positions start at 2
            ids = [self.tokenizer.encode(text, truncation=True, max_length=limit) for text in texts]
            drawn: list[list[str]] = [[] for _ in texts]
            device = self.model.device.type
            for batch in token_budget_batches(np.array([len(row) for row in ids]), TOKENS_PER_BATCH[device]):
                with torch.inference_mode():
                    logits_BTV = self.model(**padded([ids[row] for row in batch], self.pad_id, device)).logits
                for row, logits_TV in zip(batch.tolist(), logits_BTV, strict=True):
                    if self.mask_id in ids[row]:
                        logits_V = logits_TV[ids[row].index(self.mask_id)].float().cpu()
                        drawn[row] = self._draw(logits_V, texts[row], target_words[row])
            return drawn

        def _draw(self, logits_V: torch.Tensor, text: str, target: str) -> list[str]:
            torch.manual_seed(seed_generators(self.seed, "contextual", text, target))
            logits_K, pieces = self.filtering(logits_V, {"top_k": self.top_k, "top_p": None})
            words = [word for word, _ in self.pick(logits_K, pieces, target_word=target, n=_CANDIDATES)]
            words = [word for word in words if word.startswith(word_prefix)]
            return [random.choice(words)] if words else []

    class SeededAugmenter(ContextualWordEmbsAug):
        seed = 0

        @classmethod
        def get_model(cls, model_path: str, device: str, top_k: int, **_: Any) -> SeededModel:
            return SeededModel(model_path, device=device, top_k=top_k)

        def _get_aug_idxes(self, tokens: list[str]) -> list[int]:
            seed_generators(self.seed, "contextual", *tokens)
            return list(super()._get_aug_idxes(tokens))

    return SeededAugmenter(source, model_type=family, top_k=top_k, aug_p=share, device=default_device())
