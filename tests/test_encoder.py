"""Encoders: the vectors are SentenceTransformer's own, the identity sees all that they depend on, bad folders are named."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from architectures import make_static
from safetensors.numpy import load_file, save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Transformer
from sentence_transformers.base.modules.dense import Dense
from sentence_transformers.sentence_transformer.modules import Pooling
from tokenizers.processors import TemplateProcessing

from distilbench.encoders.encoder import PACKAGED, EncoderSpec, transformer_folder
from distilbench.encoders.encoding import encode, encode_ids, token_budget_batches, token_ids
from distilbench.encoders.onnx_graph import Int8Encoder
from distilbench.encoders.student import check_student
from distilbench.errors import InputError
from distilbench.machine import torch_threads
from distilbench.trials.scoring import count_parameters, encoder_parameters

SENTENCES = (
    "the dog runs in the park",
    "a",
    "",  # special tokens alone
    "one small red cat plays slowly under the big blue house by the river today",
    "the dog runs in the park",  # a repeat
    "zq, not in the vocabulary?",
    "how do i open the door " * 30,  # longer than the encoder's limit
)


@pytest.fixture(scope="module")
def model(encoder_folder: Path) -> SentenceTransformer:
    return EncoderSpec(str(encoder_folder)).load()


@pytest.fixture
def folder(tmp_path: Path, encoder_folder: Path) -> Path:
    """A copy of the encoder that a test may change."""
    return Path(shutil.copytree(encoder_folder, tmp_path / "mine"))


def weights(folder: Path) -> Path:
    (found,) = folder.rglob("model.safetensors")
    return found


def edit_json(path: Path, change: Callable[[Any], None]) -> None:
    value = json.loads(path.read_text())
    change(value)
    path.write_text(json.dumps(value))


# Vectors


@pytest.mark.parametrize("order", [[0, 1, 2, 3, 4, 5, 6], [6, 5, 4, 3, 2, 1, 0], [3, 0, 6, 1, 5, 2, 4], [2]])
# A budget of 1 makes batches of one sentence; the last one takes all at once.
@pytest.mark.parametrize("budget", [1, 40, None])
def test_vectors_are_those_of_sentence_transformers(
    model: SentenceTransformer, order: list[int], budget: int | None
) -> None:
    sentences = [SENTENCES[i] for i in order]
    vectors = encode_ids(model, token_ids(model, sentences), budget) if budget else encode(model, sentences)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(vectors, model.encode(sentences, batch_size=1), atol=1e-5)


def test_weights_in_half_precision_are_loaded_in_float32(folder: Path, model: SentenceTransformer) -> None:
    half = SentenceTransformer(str(folder), device="cpu").half()
    half.save(str(folder), create_model_card=False)
    loaded = EncoderSpec(str(folder)).load()
    assert {p.dtype for p in loaded.parameters()} == {torch.float32}
    np.testing.assert_allclose(encode(loaded, SENTENCES), encode(model, SENTENCES), atol=1e-2)


def test_a_prompt_is_put_before_every_sentence(model: SentenceTransformer) -> None:
    prompted = encode(model, SENTENCES, prompt="how do i ")
    np.testing.assert_allclose(prompted, model.encode(list(SENTENCES), prompt="how do i "), atol=1e-5)
    assert np.abs(prompted - encode(model, SENTENCES))[:6].max(axis=1).min() > 1e-3


def test_a_prompt_may_be_left_out_of_the_mean(folder: Path) -> None:
    edit_json(next(folder.glob("1_Pooling/config.json")), lambda config: config.update(include_prompt=False))
    model, prompts = EncoderSpec(str(folder)).load(), ["how do i ", "", "what is "]
    sentences = [*SENTENCES[:2], SENTENCES[3]]
    expected = [model.encode(text, prompt=prompt) for text, prompt in zip(sentences, prompts, strict=True)]
    np.testing.assert_allclose(encode(model, sentences, prompt=prompts), expected, atol=1e-5)
    expected = model.encode(list(SENTENCES), prompt="how do i ")
    np.testing.assert_allclose(encode(model, SENTENCES, prompt="how do i "), expected, atol=1e-5)


def test_more_tokens_than_positions_are_refused(folder: Path) -> None:
    for spec, limit in ((EncoderSpec(str(folder), max_tokens=65), 65), (EncoderSpec(str(folder)), 512)):
        with pytest.raises(InputError, match=f"would read {limit} tokens of a text, and reads 64 tokens at most"):
            if limit == 512:
                edit_json(next(folder.glob("sentence_bert_config.json")), lambda c: c.update(max_seq_length=512))
            spec.load()


def test_max_tokens_cuts_sentences(encoder_folder: Path, model: SentenceTransformer) -> None:
    short = EncoderSpec(str(encoder_folder), max_tokens=6).load()
    assert [len(ids) for ids in token_ids(short, SENTENCES)] == [6, 3, 2, 6, 6, 6, 6]
    np.testing.assert_allclose(encode(short, SENTENCES), short.encode(list(SENTENCES)), atol=1e-5)
    # 4 words are left of 6 tokens.
    np.testing.assert_allclose(encode(short, SENTENCES[:1]), encode(model, ["the dog runs in"]), atol=1e-5)


def test_a_vector_that_is_not_finite_names_its_sentence(folder: Path) -> None:
    path = weights(folder)
    tensors = load_file(path)
    (name,) = [n for n in tensors if n.endswith("word_embeddings.weight")]
    broken = EncoderSpec(str(folder)).load()
    (cat,) = broken.tokenizer.convert_tokens_to_ids(["cat"])
    tensors[name] = tensors[name].copy()
    tensors[name][cat] = np.nan
    save_file(tensors, path, metadata={"format": "pt"})
    with pytest.raises(FloatingPointError, match="not finite for 'a cat runs'"):
        encode(EncoderSpec(str(folder)).load(), ["the dog", "a cat runs", "one house"])


def _chat_template(folder: Path) -> None:
    """A plain folder whose tokenizer has one: sentence-transformers reads each sentence through it."""
    (folder / "modules.json").unlink()
    template = "{% for m in messages %}the {{ m['role'] }} sees {{ m['content'] }} {% endfor %}"
    (folder / "chat_template.jinja").write_text(template)


def _tokenizer_settings(folder: Path) -> None:
    settings = {"text": {"add_special_tokens": False, "max_length": 7}}
    edit_json(folder / "sentence_bert_config.json", lambda c: c.update(processing_kwargs=settings))


@pytest.mark.parametrize("prompt", [None, "how do i "])
@pytest.mark.parametrize("change", [_chat_template, _tokenizer_settings])
def test_what_is_read_beside_the_tokens_is_sentence_transformers_own(
    folder: Path, model: SentenceTransformer, change: Callable[[Path], None], prompt: str | None
) -> None:
    before = EncoderSpec(str(folder)).identity()
    change(folder)
    sentences = [*SENTENCES[:2], *SENTENCES[3:6]]
    expected = SentenceTransformer(str(folder), device="cpu").encode(sentences, prompt=prompt)
    assert np.abs(expected - model.encode(sentences, prompt=prompt)).max() > 1e-3
    spec = EncoderSpec(str(folder))
    np.testing.assert_allclose(encode(spec.load(), sentences, prompt=prompt), expected, atol=1e-5)
    assert spec.identity() != before
    with pytest.raises(InputError, match="no transformer that reads tokens"):
        check_student(str(folder), EncoderSpec("all-MiniLM-L6-v2"))


def test_types_of_tokens_are_read(folder: Path) -> None:
    """As XLNet has them, whose last token has a type of its own."""
    model = EncoderSpec(str(folder)).load()
    plain, special = encode(model, SENTENCES[:2]), [("[CLS]", 2), ("[SEP]", 3)]
    typed = TemplateProcessing(single="[CLS]:1 $A:0 [SEP]:0", special_tokens=special)
    model.tokenizer.backend_tokenizer.post_processor = typed
    expected = model.encode(list(SENTENCES[:2]))
    assert np.abs(expected - plain).max() > 1e-3
    np.testing.assert_allclose(encode(model, SENTENCES[:2]), expected, atol=1e-5)


def test_a_table_of_positions_of_any_name_is_found(encoder_folder: Path, tmp_path: Path) -> None:
    from transformers import AutoTokenizer, BartConfig, BartModel, GPT2Config, GPT2Model

    sizes = {"d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 16, "decoder_ffn_dim": 16}
    heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2}
    bart = BartModel(BartConfig(vocab_size=200, max_position_embeddings=32, **sizes, **heads))
    gpt2 = GPT2Model(GPT2Config(vocab_size=200, n_embd=16, n_layer=1, n_head=2, n_positions=32))
    for inner, name in ((bart, "bart"), (gpt2, "gpt2")):
        inner.save_pretrained(tmp_path / name)
        AutoTokenizer.from_pretrained(str(encoder_folder)).save_pretrained(tmp_path / name)
        assert EncoderSpec(str(tmp_path / name), max_tokens=32).load().max_seq_length == 32
        with pytest.raises(InputError, match="would read 33 tokens of a text, and reads 32 tokens at most"):
            EncoderSpec(str(tmp_path / name), max_tokens=33).load()


# Batches


@pytest.mark.parametrize("budget", [1, 20, 64, 10_000])
@pytest.mark.parametrize("count", [0, 1, 2, 200])
def test_batches_hold_every_position_once_within_the_budget(count: int, budget: int) -> None:
    lengths = np.random.default_rng(count).integers(2, 40, count)
    batches = token_budget_batches(lengths, budget)
    assert sorted(i for batch in batches for i in batch) == list(range(count))
    for batch in batches:
        assert len(batch) == 1 or lengths[batch].max() * len(batch) <= budget
    # No batch could have taken the first sentence of the next one too.
    for batch, following in pairwise(batches):
        assert (len(batch) + 1) * lengths[following[0]] > budget


@pytest.mark.parametrize(
    ("enough", "expected"),
    [
        (None, [[3, 4, 4, 4, 5, 5], [9]]),
        (12, [[3, 4, 4, 4], [5, 5, 9]]),  # 16 tokens are enough, 10 are not
        (1, [[3], [4, 4, 4], [5, 5], [9]]),  # no padding at all
    ],
)
def test_a_batch_with_enough_tokens_takes_no_longer_sentence(enough: int | None, expected: list[list[int]]) -> None:
    lengths = np.array([5, 4, 9, 3, 4, 5, 4])
    batches = token_budget_batches(lengths, 30, enough)
    assert [lengths[batch].tolist() for batch in batches] == expected
    assert sorted(i for batch in batches for i in batch) == list(range(7))


# Identity


def _other_weight(folder: Path) -> None:
    tensors = dict(load_file(weights(folder)))
    name = min(tensors)
    tensors[name] = tensors[name].copy()
    tensors[name].flat[0] += 1
    save_file(tensors, weights(folder), metadata={"format": "pt"})


def _other_pooling(folder: Path) -> None:
    edit_json(next(folder.glob("1_Pooling/config.json")), lambda c: c.update(pooling_mode="cls"))


def _other_vocabulary(folder: Path) -> None:
    path = next(folder.rglob("tokenizer.json"))
    path.write_text(path.read_text().replace('"dog"', '"fox"'))


@pytest.mark.parametrize("change", [_other_weight, _other_pooling, _other_vocabulary])
def test_the_identity_sees_every_file_that_counts(folder: Path, change: Callable[[Path], None]) -> None:
    spec = EncoderSpec(str(folder))
    before = spec.identity()
    change(folder)
    assert spec.identity() != before


def test_a_hub_encoder_is_its_name_and_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A branch moves: its name says nothing about the weights.
    commits = {None: "c0ffee", "main": "c0ffee", "v2": "beef"}

    def snapshot(name: str, *, revision: str | None, **_: object) -> str:
        return str(tmp_path / commits[revision])

    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot)
    spec = EncoderSpec("owner/name")
    assert spec.folder() is None
    before = spec.identity()
    assert before == replace(spec, revision="main").identity()
    assert before != replace(spec, revision="v2").identity()
    assert before != EncoderSpec("owner/name2").identity()
    commits[None] = "decade"
    assert before != spec.identity()


# Width


def test_an_encoder_that_is_cut_gives_what_sentence_transformers_gives(folder: Path) -> None:
    edit_json(folder / "config_sentence_transformers.json", lambda config: config.update(truncate_dim=8))
    spec = EncoderSpec(str(folder))
    model = spec.load()
    vectors = encode(model, SENTENCES)
    assert spec.width() == vectors.shape[1] == 8
    assert vectors == pytest.approx(model.encode(list(SENTENCES)), abs=1e-5)
    assert encode_ids(model, token_ids(model, SENTENCES), 1024) == pytest.approx(vectors, abs=1e-5)


@pytest.mark.parametrize("cut", ["8", 0, -1, 2.5])
def test_a_cut_that_is_no_width_is_one_clear_error(folder: Path, cut: Any) -> None:
    edit_json(folder / "config_sentence_transformers.json", lambda config: config.update(truncate_dim=cut))
    with pytest.raises(InputError, match=re.escape(f"truncate_dim: {cut!r}; expected a number of dimensions")):
        EncoderSpec(str(folder)).width()


@pytest.mark.parametrize("widths", [[8], [64, 12]])
def test_width_is_that_of_the_last_dense_layer(encoder_folder: Path, tmp_path: Path, widths: list[int]) -> None:
    """Whatever its folder is called, and whatever lies beside it."""
    modules = list(SentenceTransformer(str(encoder_folder), device="cpu"))[:2]
    for before, after in zip([32, *widths], widths, strict=False):
        modules.append(Dense(before, after))
    model = SentenceTransformer(modules=modules, device="cpu")
    model.save(str(tmp_path / "dense"), create_model_card=False)
    last = tmp_path / "dense" / f"{len(widths) + 1}_Dense"
    shutil.copytree(last, last.with_name("9_Dense"))
    last.rename(last.with_name(f"last_Dense_{widths[-1]}"))
    edit_json(tmp_path / "dense" / "modules.json", lambda m: m[-1].update(path=f"last_Dense_{widths[-1]}"))
    edit_json(tmp_path / "dense" / "9_Dense" / "config.json", lambda config: config.update(out_features=5))
    spec = EncoderSpec(str(tmp_path / "dense"))
    vectors = encode(spec.load(), SENTENCES)
    assert spec.width() == vectors.shape[1] == widths[-1]
    np.testing.assert_allclose(vectors, model.encode(list(SENTENCES)), atol=1e-5)


def test_a_packaged_encoder_is_found_by_name() -> None:
    pytest.importorskip(PACKAGED["all-MiniLM-L6-v2"][0])
    spec = EncoderSpec("all-MiniLM-L6-v2")
    assert spec.width() == 384 and spec.title == "all-MiniLM-L6-v2"


def test_width_of_an_encoder_that_names_its_width_otherwise(encoder_folder: Path, tmp_path: Path) -> None:
    # DistilBERT's config.json says "dim" for it, not "hidden_size".
    from transformers import AutoTokenizer, DistilBertConfig, DistilBertModel

    tokenizer = AutoTokenizer.from_pretrained(str(encoder_folder))
    raw = tmp_path / "raw"
    tokenizer.save_pretrained(raw)
    config = DistilBertConfig(vocab_size=len(tokenizer), dim=16, n_layers=1, n_heads=2, hidden_dim=32)
    DistilBertModel(config).save_pretrained(raw)
    folder = tmp_path / "distilbert"
    transformer = Transformer(str(raw))
    SentenceTransformer(modules=[transformer, Pooling(16)], device="cpu").save(str(folder), create_model_card=False)
    spec = EncoderSpec(str(folder))
    assert spec.width() == encode(spec.load(), ["a dog"]).shape[1] == 16


# Bad folders


def _no_weights(folder: Path) -> None:
    weights(folder).unlink()


def _no_config(folder: Path) -> None:
    weights(folder).with_name("config.json").unlink()


def _config_without_width(folder: Path) -> None:
    edit_json(weights(folder).with_name("config.json"), lambda c: c.pop("hidden_size"))


def _half_a_module_list(folder: Path) -> None:
    (folder / "modules.json").write_text('[{"idx": 0,')


def _weights_of_another_kind(folder: Path) -> None:
    kept = load_file(weights(folder))
    save_file({name.replace("query", "q_proj"): tensor for name, tensor in kept.items()}, weights(folder))


def _graph_alone(folder: Path) -> None:
    (folder / "onnx").mkdir()
    weights(folder).rename(folder / "onnx" / "model.onnx")


def _adapter(folder: Path) -> None:
    weights(folder).rename(weights(folder).with_name("adapter_model.safetensors"))
    (folder / "adapter_config.json").write_text('{"peft_type": "LORA", "base_model_name_or_path": "none"}')


BAD_FOLDERS = [
    (_no_weights, r"no weights in it; expected one of model\.safetensors"),
    (_no_config, r"cannot be loaded"),
    (_config_without_width, r"cannot be loaded"),  # the weights do not fit
    (_half_a_module_list, r"modules\.json is not a list of modules"),
    (_weights_of_another_kind, r"its files lack \d+ of the weights of BertModel, such as .*query"),
    (_graph_alone, r"graphs of ONNX alone in it; expected one of model\.safetensors"),
    (_adapter, r"an adapter without its base in it; expected one of model\.safetensors"),
]


@pytest.mark.parametrize(("damage", "message"), BAD_FOLDERS)
def test_a_bad_folder_is_named_before_it_is_loaded(folder: Path, damage: Callable[[Path], None], message: str) -> None:
    damage(folder)
    with pytest.raises(InputError, match=rf"mine.*{message}"):
        EncoderSpec(str(folder)).width()


def test_the_working_folder_is_no_part_of_an_encoder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as a run's folder, or the encoder's own, which has a config.json."""
    monkeypatch.chdir(folder)
    assert (folder / "config.json").is_file() and EncoderSpec(str(folder)).width() == 32


@pytest.mark.parametrize("name", ["/no/such/place", "./here", "~/nothing-there-4711", "a/b/c", "plain", ""])
def test_a_name_that_is_neither_a_folder_nor_a_hub_id(name: str) -> None:
    with pytest.raises(InputError, match=rf"encoder '{name}': no such folder; expected .* a packaged encoder"):
        EncoderSpec(name).folder()


def _truncated_weights(folder: Path) -> None:
    weights(folder).write_bytes(weights(folder).read_bytes()[:1000])


def _unknown_architecture(folder: Path) -> None:
    edit_json(weights(folder).with_name("config.json"), lambda c: c.update(model_type="nonesuch", architectures=["X"]))


def _pointer(folder: Path) -> None:
    weights(folder).write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")


class _Code:
    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path("ran"),)


def _pickled_code(folder: Path) -> None:
    weights(folder).unlink()
    torch.save({"weight": _Code()}, folder / "pytorch_model.bin")


def _own_model(folder: Path) -> None:
    config = weights(folder).with_name("config.json")
    config.with_name("own.py").write_text("raise SystemExit('it ran')")
    edit_json(
        config, lambda c: c.update(model_type="own", auto_map={"AutoConfig": "own.Config", "AutoModel": "own.Own"})
    )


def _own_module(folder: Path) -> None:
    (folder / "own.py").write_text("raise SystemExit('it ran')")
    edit_json(folder / "modules.json", lambda modules: modules[1].update(type="own.Pooling"))


def _half_a_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").write_text('{"version": "1.0",')


def _settings_of_another_kind(folder: Path) -> None:
    (folder / "sentence_bert_config.json").write_text("[1]")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_truncated_weights, r"model\.safetensors is damaged, or not whole: "),
        (_unknown_architecture, r"\S"),
        (_pointer, r"model\.safetensors is a pointer of Git LFS"),
        (_half_a_tokenizer, r"tokenizer\.json is damaged, or not whole: "),
        (_settings_of_another_kind, r"\S"),
        (_pickled_code, "Weights only load failed"),
        (_own_model, "it needs code that comes with it, which is never run"),
        (_own_module, "it needs code that comes with it, which is never run"),
    ],
)
def test_a_folder_that_cannot_be_loaded_is_named(folder: Path, damage: Callable[[Path], None], message: str) -> None:
    damage(folder)
    with pytest.raises(InputError, match=rf"mine': cannot be loaded: {message}"):
        EncoderSpec(str(folder)).load()


def test_the_parameters_of_pickled_weights_are_counted(folder: Path, model: SentenceTransformer) -> None:
    expected = count_parameters(folder)
    torch.save(model[0].model.state_dict(), folder / "pytorch_model.bin")
    assert encoder_parameters(EncoderSpec(str(folder))) == expected
    weights(folder).unlink()
    assert encoder_parameters(EncoderSpec(str(folder))) == sum(p.numel() for p in model.parameters())


def test_an_encoder_with_a_default_prompt_reads_it(encoder_folder: Path) -> None:
    model = EncoderSpec(str(encoder_folder)).load()
    plain = encode(model, ["the dog runs"])
    model.prompts, model.default_prompt_name = {"query": "how do i "}, "query"
    prompted = encode(model, ["the dog runs"])
    assert np.abs(prompted - plain).max() > 1e-3
    assert prompted == pytest.approx(model.encode(["the dog runs"]), abs=1e-5)
    assert encode(model, ["the dog runs"], prompt="what is ") == pytest.approx(
        model.encode(["the dog runs"], prompt="what is "), abs=1e-5
    )


@pytest.mark.parametrize("threads", [1, 2])
def test_int8_weights_give_nearly_the_same_vectors_in_less_memory(
    encoder_folder: Path, model: SentenceTransformer, threads: int
) -> None:
    spec = EncoderSpec(str(encoder_folder), int8=True)
    spec.check("model")
    in_int8 = spec.load()
    with torch_threads(threads):
        vectors_ND, float32_ND = encode(in_int8, SENTENCES), encode(model, SENTENCES)
    norms = np.linalg.norm(vectors_ND, axis=1) * np.linalg.norm(float32_ND, axis=1)
    cosine_N = (vectors_ND * float32_ND).sum(axis=1) / norms
    assert 0.98 < cosine_N.min() and np.abs(vectors_ND - float32_ND).max() > 1e-4, "they were quantised"
    assert isinstance(in_int8.forward, Int8Encoder)
    assert len(in_int8.forward.graph) < 0.6 * sum(4 * p.numel() for p in model.parameters())
    assert spec.identity() != replace(spec, int8=False).identity()
    assert spec.title == f"{encoder_folder.stem}, int8 weights"


def test_int8_weights_are_cut_as_the_encoder_is(folder: Path) -> None:
    path = folder / "config_sentence_transformers.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "truncate_dim": 8}))
    assert encode(EncoderSpec(str(folder), int8=True).load(), ["the dog runs"]).shape == (1, 8)


def test_what_has_no_graph_or_no_package_for_int8_weights_is_refused(
    encoder_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    static = EncoderSpec(str(make_static(transformer_folder(encoder_folder), tmp_path / "static")), int8=True)
    with pytest.raises(InputError, match=r"--backend int8: encoder .*begins with a StaticEmbedding .*expected torch"):
        static.check("model")
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(InputError, match=r"--backend int8: the package onnxruntime is not installed"):
        EncoderSpec(str(encoder_folder), int8=True).check("model")
