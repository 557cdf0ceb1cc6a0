"""Augmented corpora: reproducible copies of training sentences that disturb nothing already there."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from small_models import SENTENCES as TRAIN

from distilbench.data.corpus import Corpus, CorpusBuilder
from distilbench.errors import InputError
from distilbench.prepare import copies as copying
from distilbench.prepare.augment import operations
from distilbench.prepare.augment import synonym as module
from distilbench.prepare.augment.synonym import DEBIAN_WORDNET, INSTALL, Synonym, synonym_augmenter, wordnet_checksums
from distilbench.storage.store import ArtifactStore


def make_corpus(train: tuple[str, ...] = TRAIN, evaluation: tuple[str, ...] = ("a cat", "no cat")) -> Corpus:
    """Evaluation sentences first, so that training rows do not start at 0."""
    builder = CorpusBuilder("small")
    builder.add_sts("STS", "", "dev", evaluation, evaluation[::-1], [3.0] * len(evaluation))
    builder.train_on(train)
    builder.add_pairs([train[0]], [train[-1]])
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


@pytest.fixture(scope="module")
def wordnet() -> None:
    """The tests that need WordNet and the tagger say so where these are not."""
    try:
        Synonym().check()
    except InputError as missing:
        pytest.skip(str(missing))


@pytest.mark.usefixtures("wordnet")
def test_released_copies_stay_the_same() -> None:
    """What this seed gave when runs were recorded with it."""
    assert copies(augmented_corpus(make_corpus(TRAIN[1:2]), ["synonym"], 7)) == [
        "A man be wreak the guitar on a stage."
    ]


@pytest.mark.usefixtures("wordnet")
def test_random_states_are_given_back_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    from nlpaug.augmenter.word import SynonymAug

    monkeypatch.setattr(SynonymAug, "substitute", lambda self, sentence: random.random() / 0)
    state = random.getstate()
    with pytest.raises(ZeroDivisionError):
        augmented_corpus(make_corpus(), ["synonym"], 0)
    assert random.getstate() == state


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
    plain, remembering = (synonym_augmenter(remembered) for remembered in (0, 1000))
    random.seed(0)
    wanted = [plain.augment(sentence)[0] for sentence in sentences]
    random.seed(0)
    assert [remembering.substitute(sentence) for sentence in sentences] == wanted


@pytest.mark.usefixtures("wordnet")
def test_a_sentence_without_synonyms_is_unchanged_whatever_nlpaug_does_to_its_spaces() -> None:
    made = augmented_corpus(make_corpus(("qzxv'qzxw qzxy-qzxz.",)), ["synonym"], 0)
    assert not copies(made)
