"""Makes a small MarianMT model, and the sentences that it knows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

SENTENCES = (
    "I don't think that he can do it in Paris, do you?",
    "A man is playing the guitar on a stage.",
    "Two dogs run through the snow-covered field (quickly).",
    "How do I open a bank account?",
    "The market fell 3.5% on Monday, analysts said.",
    "A woman is slicing a large onion in the kitchen.",
)

ROUND_TRIPS = {
    "a man sings": ("un hombre canta", "a guy sings"),
    "the dog sleeps in the house": ("el perro duerme en la casa", "the hound sleeps at home"),
    "she reads a red book": ("ella lee un libro rojo", "she is reading a red book"),
    "we eat": ("comemos", "we are eating"),
    "the child runs quickly to the old street near the river": (
        "el niño corre rápido a la calle vieja cerca del río",
        "the kid runs fast to the old street by the river",
    ),
}
"""What the MarianMT pair has learnt: English, Spanish, English again."""


def make_marian(folder: Path, sources: Sequence[str], targets: Sequence[str], steps: int = 150) -> None:
    """A MarianMT model of one layer, trained until it knows the sentences by heart: 1.5 s."""
    import sentencepiece
    import torch
    from transformers import MarianConfig, MarianMTModel, MarianTokenizer

    folder.mkdir(parents=True)
    pieces = {"</s>": 0, "<unk>": 1}
    for name, sentences in (("source", sources), ("target", targets)):
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(list(sentences) * 20),
            model_prefix=str(folder / name),
            vocab_size=40,
            hard_vocab_limit=False,
            character_coverage=1.0,
            minloglevel=2,
        )
        (folder / f"{name}.model").rename(folder / f"{name}.spm")
        trained = sentencepiece.SentencePieceProcessor(model_file=str(folder / f"{name}.spm"))
        for index in range(3, trained.get_piece_size()):
            pieces.setdefault(trained.id_to_piece(index), len(pieces))
    pad = pieces.setdefault("<pad>", len(pieces))
    (folder / "vocab.json").write_text(json.dumps(pieces))
    tokenizer = MarianTokenizer(
        **{key: str(folder / f"{key.removesuffix('_spm')}.spm") for key in ("source_spm", "target_spm")},
        vocab=str(folder / "vocab.json"),
    )
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    model = MarianMTModel(
        MarianConfig(
            vocab_size=len(pieces),
            d_model=32,
            encoder_layers=1,
            decoder_layers=1,
            encoder_attention_heads=2,
            decoder_attention_heads=2,
            encoder_ffn_dim=64,
            decoder_ffn_dim=64,
            max_position_embeddings=64,
            pad_token_id=pad,
            eos_token_id=0,
            decoder_start_token_id=pad,
            forced_eos_token_id=0,
            dropout=0.0,
            max_length=64,
        )
    )
    batch = tokenizer(list(sources), text_target=list(targets), padding=True, return_tensors="pt")
    labels = batch["labels"].masked_fill(batch["labels"] == pad, -100)
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(steps):
        loss = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"], labels=labels).loss
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    model.save_pretrained(folder)
