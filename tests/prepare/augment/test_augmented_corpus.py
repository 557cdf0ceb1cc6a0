"""Augmented corpora: reproducible copies of training sentences that disturb nothing already there."""

from __future__ import annotations

import random
import re
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from small_models import SENTENCES as TRAIN

from distilbench.data.corpus import Corpus, CorpusBuilder
from distilbench.errors import InputError
from distilbench.prepare import copies as copying
from distilbench.prepare.augment import operations
from distilbench.prepare.augment import wordnet as module
from distilbench.prepare.augment.wordnet import DEBIAN_WORDNET, INSTALL, wordnet_checksums
from distilbench.prepare.augment.words import Swap, Synonym, synonym_augmenter
from distilbench.storage.store import ArtifactStore


def make_corpus(train: tuple[str, ...] = TRAIN, evaluation: tuple[str, ...] = ("a cat", "no cat")) -> Corpus:
    """Evaluation sentences first, so that training rows do not start at 0."""
    builder = CorpusBuilder("small")
    builder.add_sts("STS", "", "dev", evaluation, evaluation[::-1], [3.0] * len(evaluation))
    builder.train_on(train)
    builder.train_pairs([train[0]], [train[-1]])
    return builder.build()


def copies(corpus: Corpus) -> list[str]:
    return [corpus.sentences[row] for row in corpus.copies.rows]


Run = Callable[..., None]


@pytest.fixture(autouse=True)
def without_ray(monkeypatch: pytest.MonkeyPatch, run_in_process: Run) -> None:
    monkeypatch.setattr(copying, "run_pool", run_in_process)


def augmented_corpus(corpus: Corpus, names: Sequence[str], seed: int) -> Corpus:
    """Made in this process and in a store of its own, all sentences in memory."""
    with TemporaryDirectory() as store:
        chosen = operations(names)
        made = copying.augmented_corpus(corpus, chosen, seed, ArtifactStore(Path(store)))
        return made if made is corpus else replace(made, sentences=tuple(made.sentences))


def words(sentence: str) -> Counter[str]:
    return Counter(re.findall(r"\w+|[^\w\s]", sentence.lower()))


@pytest.fixture(params=["synonym", "swap", "delete"])
def operation(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    if name == "synonym":
        request.getfixturevalue("wordnet")
    return name


@pytest.fixture(scope="module")
def wordnet() -> None:
    """The tests that need WordNet and the tagger say so where these are not."""
    try:
        Synonym().check()
    except InputError as missing:
        pytest.skip(str(missing))


def test_rows_and_sets_stay(operation: str) -> None:
    corpus = make_corpus()
    made = augmented_corpus(corpus, [operation], 0)
    assert made.sentences[: len(corpus.sentences)] == corpus.sentences
    np.testing.assert_array_equal(made.train, corpus.train)
    np.testing.assert_array_equal(made.pairs_P2, corpus.pairs_P2)
    assert made.sts is corpus.sts and made.missing == corpus.missing
    assert made.copies.rows.dtype == np.int64
    assert made.copies.rows.tolist() == list(range(len(corpus.sentences), len(made.sentences)))
    assert len(set(made.sentences)) == len(made.sentences)
    assert made.found == (f"augmentation {operation}: 6 sentences from 6 (0 unchanged, 0 already there)",)
    assert made.fingerprint != corpus.fingerprint
    assert not len(corpus.copies.rows) and not corpus.found


@pytest.mark.slow
def test_a_seed_says_everything(operation: str) -> None:
    random.seed(1)
    first = augmented_corpus(make_corpus(), [operation], 0)
    random.seed(2)
    np.random.seed(2)
    assert augmented_corpus(make_corpus(), [operation], 0).sentences == first.sentences
    assert copies(augmented_corpus(make_corpus(), [operation], 1)) != copies(first)


@pytest.mark.slow
def test_other_sentences_and_operations_change_no_copy(operation: str) -> None:
    whole = copies(augmented_corpus(make_corpus(), [operation], 0))
    assert copies(augmented_corpus(make_corpus(TRAIN[::-1]), [operation], 0)) == whole[::-1]
    assert copies(augmented_corpus(make_corpus(TRAIN[2:4]), [operation], 0)) == whole[2:4]
    both = copies(augmented_corpus(make_corpus(), list(dict.fromkeys(["swap", operation])), 0))
    assert both[-6:] == whole


def test_released_copies_stay_the_same() -> None:
    """What these seeds gave when runs were recorded with them."""
    made = augmented_corpus(make_corpus(TRAIN[1:2]), ["swap", "delete"], 7)
    assert copies(made) == ["Man a is playing the a guitar on stage.", "A is guitar on a stage."]


def test_swap_keeps_all_words_and_delete_adds_none() -> None:
    for sentence, copy in zip(TRAIN, copies(augmented_corpus(make_corpus(), ["swap"], 0)), strict=True):
        assert words(copy) == words(sentence)
    for sentence, copy in zip(TRAIN, copies(augmented_corpus(make_corpus(), ["delete"], 0)), strict=True):
        assert words(copy) < words(sentence)


def test_random_states_are_given_back() -> None:
    random.seed(3)
    np.random.seed(3)
    wanted = random.random(), np.random.random()
    random.seed(3)
    np.random.seed(3)
    augmented_corpus(make_corpus(), ["swap", "delete"], 0)
    assert (random.random(), np.random.random()) == wanted


def test_random_states_are_given_back_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    from nlpaug.augmenter.word import RandomWordAug

    monkeypatch.setattr(RandomWordAug, "swap", lambda self, sentence: random.random() / 0)
    state = random.getstate()
    with pytest.raises(ZeroDivisionError):
        augmented_corpus(make_corpus(), ["swap"], 0)
    assert random.getstate() == state


def test_an_evaluation_sentence_is_never_made() -> None:
    """Two words can be swapped in one way only; spaces and case do not hide an evaluation sentence."""
    alone = augmented_corpus(make_corpus(("dogs run",)), ["swap"], 0)
    assert [copy.lower() for copy in copies(alone)] == ["run dogs"]
    for evaluation in ("run dogs", "Run  DOGS"):
        made = augmented_corpus(make_corpus(("dogs run",), (evaluation, "no cat")), ["swap"], 0)
        assert not copies(made)
        assert made.found == ("augmentation swap: 0 sentences from 1 (0 unchanged, 1 already there)",)


def test_what_is_unchanged_or_made_twice_is_counted() -> None:
    # One word, no word, nothing at all, the same word twice: nothing to swap.
    corpus = make_corpus(("Yes", "...", "", "a a", "dogs run"))
    made = augmented_corpus(corpus, ["swap", "swap"], 0)
    assert len(copies(made)) == 1
    assert made.found == ("augmentation swap: 1 sentences from 5 (4 unchanged, 0 already there)",)
    # nlpaug deletes words and leaves punctuation, so these three end up the same.
    made = augmented_corpus(make_corpus(("yes !", "no !", "! yes")), ["delete"], 0)
    assert copies(made) == ["!"] and "1 sentences from 3 (0 unchanged, 2 already there" in made.found[0]


def test_no_operation_changes_nothing() -> None:
    corpus = make_corpus()
    assert augmented_corpus(corpus, [], 0) is corpus


def test_no_training_sentence() -> None:
    corpus = replace(make_corpus(), train=np.empty(0, dtype=np.int64))
    assert augmented_corpus(corpus, ["swap"], 0).sentences == corpus.sentences


def test_unknown_operation_is_told_before_anything_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Swap, "load", lambda self: pytest.fail("made"))
    with pytest.raises(InputError, match=r"^augmentation 'shuffle': expected one of synonym, swap, delete, "):
        augmented_corpus(make_corpus(), ["swap", "shuffle"], 0)


@pytest.fixture
def bare_nltk(monkeypatch: pytest.MonkeyPatch) -> None:
    """NLTK as in a new process, with no data folder."""
    nltk = pytest.importorskip("nltk", reason=f"NLTK is not installed; expected {INSTALL}")
    from nltk.corpus.reader.wordnet import WordNetCorpusReader
    from nltk.corpus.util import LazyCorpusLoader

    monkeypatch.setattr(nltk.data, "path", [])
    monkeypatch.setattr(nltk.corpus, "wordnet", LazyCorpusLoader("wordnet", WordNetCorpusReader, None))


@pytest.mark.usefixtures("bare_nltk")
def test_wordnet_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(module, "DEBIAN_WORDNET", tmp_path)
    with pytest.raises(InputError, match=rf"^augmentation synonym: WordNet is neither .* {tmp_path}") as told:
        augmented_corpus(make_corpus(), ["synonym"], 0)
    assert INSTALL in str(told.value) and "apt-get install wordnet-base" in str(told.value)


@pytest.mark.slow
@pytest.mark.usefixtures("wordnet", "bare_nltk")
@pytest.mark.filterwarnings("ignore:The multilingual functions")
def test_nltks_own_wordnet_gives_the_same_copies(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    if not DEBIAN_WORDNET.is_dir():
        pytest.skip(f"no {DEBIAN_WORDNET} to make a folder of NLTK's kind from; expected apt-get install wordnet-base")
    wanted, checksums = copies(augmented_corpus(make_corpus(), ["synonym"], 0)), wordnet_checksums()
    import nltk

    folder = Path(shutil.copytree(DEBIAN_WORDNET, tmp_path / "corpora" / "wordnet"))
    (folder / "lexnames").write_text("".join(f"{i} name 0\n" for i in range(45)))
    (folder / "index.sense").touch()
    monkeypatch.setattr(nltk.data, "path", [str(tmp_path)])
    monkeypatch.setattr(module, "DEBIAN_WORDNET", tmp_path / "not there")
    assert copies(augmented_corpus(make_corpus(), ["synonym"], 0)) == wanted
    assert wordnet_checksums() == checksums


@pytest.mark.usefixtures("wordnet", "bare_nltk")
def test_wordnet_in_a_zip_file_has_the_same_identity(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As `python -m nltk.downloader wordnet` leaves it."""
    if not DEBIAN_WORDNET.is_dir():
        pytest.skip(f"no {DEBIAN_WORDNET} to make a zip file from; expected apt-get install wordnet-base")
    wanted = wordnet_checksums()
    import nltk

    shutil.copytree(DEBIAN_WORDNET, tmp_path / "corpora" / "wordnet")
    shutil.make_archive(str(tmp_path / "corpora" / "wordnet"), "zip", tmp_path / "corpora", "wordnet")
    shutil.rmtree(tmp_path / "corpora" / "wordnet")
    monkeypatch.setattr(nltk.data, "path", [str(tmp_path)])
    monkeypatch.setattr(module, "DEBIAN_WORDNET", tmp_path / "not there")
    assert wordnet_checksums() == wanted


@pytest.mark.usefixtures("wordnet")
def test_remembered_synonyms_are_those_of_nlpaug_alone() -> None:
    sentences = [*TRAIN, *TRAIN[::-1]]
    plain, remembering = (synonym_augmenter(cached=cached) for cached in (False, True))
    random.seed(0)
    wanted = [plain.augment(sentence)[0] for sentence in sentences]
    random.seed(0)
    assert [remembering.substitute(sentence) for sentence in sentences] == wanted


@pytest.mark.slow
@pytest.mark.usefixtures("wordnet")
def test_synonyms_are_wordnets() -> None:
    cars = {"auto", "automobile", "machine", "motorcar", "railcar", "railway car", "railroad car", "gondola"}
    made = {copies(augmented_corpus(make_corpus(("car",)), ["synonym"], seed))[0] for seed in (0, 1)}
    assert made <= cars | {"elevator car", "cable car"}


@pytest.mark.usefixtures("wordnet")
def test_a_sentence_without_synonyms_is_unchanged_whatever_nlpaug_does_to_its_spaces() -> None:
    made = augmented_corpus(make_corpus(("qzxv'qzxw qzxy-qzxz.",)), ["synonym"], 0)
    assert not copies(made)
