"""A tokenizer with fewer tokens: those that some text uses, those that are special, and what every word can be read with.
Or with more: whole words of the text.

A word that the text does not have is read in smaller pieces, down to single characters, which all stay. The text itself is
read as before, since what is left out was never among its pieces:

* WordPiece takes the longest piece that fits, and no longer one is added;
* byte-pair encoding has every merge on the way to a piece that stays, in the same order;
* a unigram model's best path has none but pieces that stay.

V: tokens that stay.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from distilbench.errors import InputError

PRUNABLE = ("WordPiece", "BPE", "Unigram")
"""The tokenizers that words of other text can still be read with when they lose tokens."""
GROWABLE = ("WordPiece",)
"""The tokenizers that read a word as one token if it is in their vocabulary."""
SPACE = "▁"
"""What sentencepiece writes for a space, at the begin of a piece."""


class Pruned(NamedTuple):
    """A tokenizer (the content of its tokenizer.json), and the number that each of its tokens had before, rising."""

    tokenizer: dict[str, Any]
    kept_V: NDArray[np.int64]


def check_kind(tokenizer: Mapping[str, Any], what: str, kinds: Sequence[str]) -> None:
    """Check that a tokenizer (the content of its tokenizer.json) is of one of these kinds."""
    kind = tokenizer.get("model", {}).get("type")
    if kind not in kinds:
        raise InputError(f"{what}: its tokenizer is {kind or 'of no known kind'}; expected one of {', '.join(kinds)}")


def pruned(tokenizer: Mapping[str, Any], used: Iterable[int], what: str) -> Pruned:
    """The tokenizer with the tokens `used` and those that it needs in any case; their numbers are in the same order."""
    check_kind(tokenizer, what, PRUNABLE)
    new, kept = copy.deepcopy(dict(tokenizer)), {int(i) for i in used}
    added = {int(token["id"]) for token in new.get("added_tokens") or ()}
    kept |= added | set(_of_post_processor(new.get("post_processor") or {}))
    model, prune = new["model"], {"WordPiece": _word_piece, "BPE": _byte_pairs, "Unigram": _unigram}
    kept_V = sorted(prune[model["type"]](model, kept) | added)
    number = {old: place for place, old in enumerate(kept_V)}
    if model["type"] == "Unigram":
        model["vocab"] = [entry for old, entry in enumerate(model["vocab"]) if old in number]
        if model.get("unk_id") is not None:
            model["unk_id"] = number[model["unk_id"]]
    else:
        model["vocab"] = {token: number[old] for token, old in model["vocab"].items() if old in number}
    for token in new.get("added_tokens") or ():
        token["id"] = number[token["id"]]
    _of_post_processor(new.get("post_processor") or {}, number)
    if new.get("padding"):
        new["padding"]["pad_id"] = number.get(new["padding"]["pad_id"], 0)
    return Pruned(new, np.array(kept_V, dtype=np.int64))


def grown(tokenizer: Mapping[str, Any], words: Iterable[str]) -> dict[str, Any]:
    """The WordPiece tokenizer with these words, numbered after its own tokens.

    It takes the longest piece from the start of a word, so each of them is read whole. A word that begins with one of them
    may be cut in another place than before.
    """
    new, first = copy.deepcopy(dict(tokenizer)), token_count(tokenizer)
    new["model"]["vocab"] |= {word: first + place for place, word in enumerate(words)}
    return new


def token_count(tokenizer: Mapping[str, Any]) -> int:
    """One more than the largest number of a token."""
    added = (int(token["id"]) for token in tokenizer.get("added_tokens") or ())
    return 1 + max(*tokenizer["model"]["vocab"].values(), *added)


def frequent_words(tokenizer: Mapping[str, Any], ids_T: NDArray[np.int64], most: int) -> dict[str, tuple[int, ...]]:
    """The `most` frequent words that a WordPiece tokenizer cuts, with their pieces, in text that it has read (T tokens)."""
    prefix = tokenizer["model"].get("continuing_subword_prefix") or ""
    names = {number: token for token, number in tokenizer["model"]["vocab"].items()}
    goes_on_V = np.zeros(token_count(tokenizer), dtype=bool)
    goes_on_V[[number for number, token in names.items() if token.startswith(prefix)]] = True
    begin_W = np.flatnonzero(~goes_on_V[ids_T])
    pieces_W = np.diff(begin_W, append=len(ids_T))
    cut = pieces_W > 1
    spans = zip(begin_W[cut].tolist(), pieces_W[cut].tolist(), strict=True)
    counts = Counter(ids_T[begin : begin + pieces].tobytes() for begin, pieces in spans)
    found = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:most]
    words = [tuple(np.frombuffer(key, dtype=ids_T.dtype).tolist()) for key, _ in found]
    return {"".join(names[i].removeprefix(prefix) for i in word): word for word in words}


def _word_piece(model: dict[str, Any], kept: set[int]) -> set[int]:
    prefix = model.get("continuing_subword_prefix") or ""
    return _within(model["vocab"], kept, lambda token: len(token.removeprefix(prefix)) == 1, [model["unk_token"]])


def _byte_pairs(model: dict[str, Any], kept: set[int]) -> set[int]:
    vocab: dict[str, int] = model["vocab"]
    prefix, suffix = model.get("continuing_subword_prefix") or "", model.get("end_of_word_suffix") or ""

    def single(token: str) -> bool:
        return len(token.removeprefix(prefix).removesuffix(suffix)) == 1 or _is_byte(token)

    stays = _within(vocab, kept, single, [model.get("unk_token")])
    merges = [merge.split(" ", 1) if isinstance(merge, str) else merge for merge in model["merges"]]
    made_of: dict[str, list[list[str]]] = {}
    for merge in merges:
        made_of.setdefault(_merged(merge, prefix), []).append(merge)
    names = {number: token for token, number in vocab.items()}
    pending = [names[number] for number in stays]
    while pending:
        for part in (part for merge in made_of.get(pending.pop(), ()) for part in merge):
            if vocab[part] not in stays:
                stays.add(vocab[part])
                pending.append(part)
    model["merges"] = [m for m in merges if all(vocab[t] in stays for t in (*m, _merged(m, prefix)))]
    return stays


def _merged(merge: Collection[str], prefix: str) -> str:
    one, other = merge
    return one + (other.removeprefix(prefix) if prefix else other)


def _unigram(model: dict[str, Any], kept: set[int]) -> set[int]:
    vocab = {piece: number for number, (piece, _) in enumerate(model["vocab"])}
    unknown = model.get("unk_id")
    stays = _within(vocab, kept, lambda piece: len(piece.removeprefix(SPACE)) <= 1 or _is_byte(piece), [])
    return stays if unknown is None else stays | {int(unknown)}


def _within(
    vocab: Mapping[str, int], kept: set[int], single: Callable[[str], bool], needed: Collection[str | None]
) -> set[int]:
    return {number for token, number in vocab.items() if number in kept or token in needed or single(token)}


def _is_byte(token: str) -> bool:
    return len(token) == 6 and token.startswith("<0x") and token.endswith(">")


def _of_post_processor(part: dict[str, Any], number: Mapping[int, int] | None = None) -> list[int]:
    """The tokens that are put around a sentence; with `number` they get their new ones."""
    found: list[int] = []
    for one in part.get("processors", ()):
        found += _of_post_processor(one, number)
    for special in (part.get("special_tokens") or {}).values() if part.get("type") == "TemplateProcessing" else ():
        found += special["ids"]
        special["ids"] = [number[i] if number else i for i in special["ids"]]
    for side in ("sep", "cls"):
        if isinstance(part.get(side), list):
            token, old = part[side]
            found.append(old)
            part[side] = [token, number[old] if number else old]
    return found
