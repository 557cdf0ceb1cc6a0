"""Where a student's encoder starts: some layers of the teacher or of another encoder, or another encoder as it is.

auto                 half as many layers as the teacher has, chosen by a ranking (`prepare.layer_ranking`)
auto:2               two of them, chosen so
half                 the first and the last of every two, the others spread evenly
layers:0,3,5         these
static               none: a vector and a weight for each of the teacher's tokens (`encoders.static`)
static@FOLDER        the static student of an earlier run, trained further
teacher              all of the teacher's
FOLDER or owner/name another encoder; layers of it are auto:2@FOLDER, half@FOLDER, layers:0,5@FOLDER
ANY:corpus           any of these, with only the tokens that the training sentences use (`prepare.pruned_students`)
static:+20k          with 20,000 words of the training sentences beside the tokens; static:corpus+20k: beside those it uses
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from distilbench.encoders.encoder import EncoderSpec
from distilbench.encoders.encoding import has_token_table, reads_tokens
from distilbench.encoders.prompts import Prompts, own_prompts, role_prompts
from distilbench.errors import InputError

HALF = "half"
AUTO = "auto"
STATIC = "static"
TEACHER = "teacher"
MEAN = "mean"
if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

    from distilbench.encoders.layers import TokenStates

Setting = TypeVar("Setting")
_NAME = re.compile(
    rf"(?P<whole>{TEACHER})|(?P<rule>{STATIC}|{HALF}|{AUTO}(?::[^@]*)?|layers:[^@]*)(?:@(?P<encoder>.*))?", re.DOTALL
)
_VOCABULARY = re.compile(
    r"(?P<start>.*?)(?::(?=[c+])(?P<corpus>corpus)?(?:\+(?P<thousands>[1-9]\d{0,3})k)?)?", re.DOTALL
)


@dataclass(frozen=True)
class StudentSpec:
    """A student's name, parsed: which layers of which encoder, and whether with few of its tokens."""

    rule: str | None
    """Which layers (auto:2, half, layers:0,3), teacher or static; None is the encoder as it is."""
    encoder: str | None
    """The encoder that it is made of, as the user names it; None is the teacher."""
    fewer_tokens: bool = False
    """Whether it has only the tokens that the training sentences use."""
    words: int = 0
    """The words of the training sentences that it has beside the tokens, in thousands."""

    @staticmethod
    @functools.cache
    def parse(name: str) -> StudentSpec:
        """The student of this name."""
        parts = _VOCABULARY.fullmatch(name)
        assert parts is not None  # it matches everything
        start, vocabulary = parts["start"], (parts["corpus"] is not None, int(parts["thousands"] or 0))
        match = _NAME.fullmatch(start)
        if match is None:
            return StudentSpec(None, start, *vocabulary)
        return StudentSpec(match["whole"] or match["rule"], match["encoder"], *vocabulary)

    def __str__(self) -> str:
        encoder = "" if self.encoder is None else self.encoder if self.rule is None else f"@{self.encoder}"
        vocabulary = ("corpus" if self.fewer_tokens else "") + (f"+{self.words}k" if self.words else "")
        return f"{self.rule or ''}{encoder}{':' if vocabulary else ''}{vocabulary}"

    @property
    def is_static(self) -> bool:
        """Whether it is a vector for each token, without layers."""
        return self.rule == STATIC

    @property
    def is_layers(self) -> bool:
        """Whether it has some of an encoder's layers, rather than all."""
        return self.rule not in (None, STATIC, TEACHER)

    @property
    def ranked(self) -> bool:
        """Whether a ranking has to say which layers it has."""
        return self.is_layers and str(self.rule).startswith(AUTO)

    def made_of(self, encoder: str) -> StudentSpec:
        """The same layers of all tokens of another encoder."""
        return StudentSpec(None if self.rule == TEACHER else self.rule, encoder)


def is_static(student: str) -> bool:
    """Whether the student is a vector for each token, without layers."""
    return StudentSpec.parse(student).is_static


def with_own_tokens(student: str) -> str:
    """The name of the same start with its encoder's own tokens."""
    return str(replace(StudentSpec.parse(student), fewer_tokens=False, words=0))


def aliases(student: str) -> tuple[str, ...]:
    """The names by which a search space speaks of a student: its own, and that of the same start with its own tokens."""
    return tuple(dict.fromkeys((student, with_own_tokens(student))))


def setting_for(student: str, settings: Mapping[str, Setting] | None) -> Setting | None:
    """What `settings` have for a student, or for the same start with all tokens; None if they have nothing for either."""
    return next((settings[name] for name in aliases(student) if name in settings), None) if settings else None


def with_encoder(student: str, renamed: Callable[[str], str]) -> str:
    """The student with its encoder's name or path replaced, where that is not the teacher."""
    spec = StudentSpec.parse(student)
    return student if spec.encoder is None else str(replace(spec, encoder=renamed(spec.encoder)))


def student_source(student: str, teacher: EncoderSpec) -> EncoderSpec:
    """The encoder that the student starts from and whose tokenizer it keeps, which reads sentences without a prompt."""
    name = StudentSpec.parse(student).encoder
    if name is None:
        return replace(teacher, prompt="", query_prompt=None, document_prompt=None)
    return EncoderSpec(name, max_tokens=teacher.max_tokens)


def student_reading(source: EncoderSpec, teacher: EncoderSpec, asked: Mapping[str, str]) -> EncoderSpec:
    """The source of a student that has prompts before queries and documents.

    `asked` has the prompts that the user names for the teacher, by role, each a name or a text. The student has its own
    prompt of that name, or of that role where none is named; else the teacher's text. Before other text it has the teacher's
    `prompt`.
    """
    taught, by_role = Prompts.of(teacher), role_prompts(source)
    query, document = (
        own_prompts(source).get(asked[role]) if role in asked else by_role.get(role) for role in ("query", "document")
    )
    return replace(
        source,
        prompt=teacher.prompt,
        query_prompt=taught.query if query is None else query,
        document_prompt=taught.document if document is None else document,
    )


def load_student(
    student: str, teacher: EncoderSpec, device: str, pooling: str = MEAN, skipped: TokenStates | None = None
) -> SentenceTransformer:
    """Transformer and pooling to start from, in evaluation mode.

    The layers are written out: `resolved_student` says what `half` and `auto` are. `skipped` are all tokens' mean states
    after the layers that are left out before the first, for which the embeddings then stand.
    """
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling

    if is_static(student):
        raise InputError(f"--student {student}: it has no transformer to load; expected an encoder, or layers of one")
    transformer = student_source(student, teacher).load(device)[0]
    if StudentSpec.parse(student).is_layers:
        from distilbench.encoders.layers import InputEmbeddings, LayerList

        model = getattr(transformer, "model", transformer)
        layer_list = LayerList(model, f"--student {student}")
        layer_list.keep(listed_layers(student, len(layer_list.layers)))
        if skipped is not None and (embeddings := InputEmbeddings.of(model)):
            embeddings.stand_for(np.arange(len(skipped.states_UD)), skipped)
    width = int(transformer.get_embedding_dimension())
    return SentenceTransformer(modules=[transformer, Pooling(width, pooling_mode=pooling)], device=device).eval()


def resolved_student(student: str, teacher: EncoderSpec, chosen: tuple[int, ...] | None = None) -> str:
    """The student with its layers written out: `half` by its rule, `auto` by the layers that a ranking has `chosen`.

    Without a ranking `auto` is as many layers by the rule of `half`: enough to measure how long its training takes.
    """
    spec = StudentSpec.parse(student)
    if not (spec.ranked or spec.rule == HALF):
        return student  # a static one too
    if spec.rule == HALF or chosen is None:
        chosen = spread_layers(count_layers(student, teacher), student_layers(student, teacher))
    return str(replace(spec, rule=f"layers:{','.join(map(str, chosen))}"))


def spread_layers(count: int, kept: int) -> tuple[int, ...]:
    """`kept` of `count` layers: the last, from two on the first, and the others evenly between."""
    return (count - 1,) if kept == 1 else tuple(int(i * (count - 1) / (kept - 1) + 0.5) for i in range(kept))


def count_layers(student: str, teacher: EncoderSpec) -> int:
    """How many layers the encoder has that the student is made of, by its configuration."""
    source, what = student_source(student, teacher), f"--student {student}"
    if is_static(student):
        raise InputError(f"{what}: it has no layers; expected auto:N, layers:0,2,4 or an encoder where layers are read")
    if not reads_tokens(source.skeleton()):
        raise InputError(f"{what}: encoder {source.name!r} has no layers: it is no transformer")
    from distilbench.encoders.layers import LayerList

    return len(LayerList(source.skeleton()[0].model, what).layers)


def student_layers(student: str, teacher: EncoderSpec) -> int:
    """How many layers the student has."""
    spec, count = StudentSpec.parse(student), count_layers(student, teacher)
    if not spec.is_layers:
        return count
    if spec.rule in (HALF, AUTO):
        return max(1, count // 2)
    if not spec.ranked:
        return len(listed_layers(student, count))
    depth = str(spec.rule).removeprefix(f"{AUTO}:")
    if not (depth.isdecimal() and 1 <= int(depth) <= count):
        raise InputError(
            f"--student {student}: expected auto, or auto:N with N from 1 to {count}, the encoder's layers"
        )
    return int(depth)


def listed_layers(student: str, count: int) -> list[int]:
    """The layers of a student such as layers:0,2,4, of an encoder with `count`."""
    parts = str(StudentSpec.parse(student).rule).removeprefix("layers:").split(",")
    indices = [int(part) for part in parts if part.strip().isdecimal()]
    if len(indices) < len(parts) or max(indices) >= count or sorted(set(indices)) != indices:
        raise InputError(
            f"--student {student}: expected rising layer numbers from 0 to {count - 1}, such as layers:0,2,4"
        )
    return indices


def student_pooling(student: str, teacher: EncoderSpec) -> str:
    """How the encoder pools that the student is made of ("cls", "lasttoken"); "mean" where it joins several, or has none."""
    from sentence_transformers.sentence_transformer.modules import Pooling

    if is_static(student) or (StudentSpec.parse(student).encoder is None and teacher.vectors is not None):
        return MEAN  # no encoder, and so none to make a student of
    modes = [m.pooling_mode for m in student_source(student, teacher).skeleton() if isinstance(m, Pooling)]
    return modes[0] if modes and isinstance(modes[0], str) else MEAN


def student_width(student: str, teacher: EncoderSpec) -> int:
    """Width of the student's pooled states, that of its transformer; the widest that a static one can be: the teacher's."""
    if is_static(student):
        return teacher.width()
    return int(student_source(student, teacher).skeleton()[0].get_embedding_dimension())


def describe_student(student: str, teacher: EncoderSpec) -> str:
    """How tables name the start."""
    spec, title = StudentSpec.parse(student), student_source(student, teacher).title
    rule = spec.rule
    if rule == STATIC:
        return f"{title} ({STATIC})" if spec.encoder else f"{title} tokens ({student})"
    if rule == TEACHER:
        return f"{title} (all layers)"
    return title if rule is None else f"{title} {rule}"


def check_student(student: str, teacher: EncoderSpec) -> None:
    """Check a student's name before anything is loaded."""
    spec = StudentSpec.parse(student)
    if student.startswith(f"{STATIC}:") and not spec.is_static:
        raise InputError(f"--student {student}: expected static, static:corpus, static:+10k or static:corpus+10k")
    if spec.words and not spec.is_static:
        raise InputError(
            f"--student {student}: only the vocabulary of a static student grows; expected static:+{spec.words}k"
        )
    if spec.is_static and spec.encoder is not None:
        if spec.words or spec.fewer_tokens:
            raise InputError(f"--student {student}: it keeps its tokens; expected static@{spec.encoder}")
        if not has_token_table(EncoderSpec(spec.encoder).skeleton()):
            raise InputError(f"--student {student}: it is no static student; expected the folder of one")
    elif spec.rule in (STATIC, TEACHER):
        if teacher.folder() is not None and not reads_tokens(teacher.skeleton()):
            raise InputError(f"--student {student}: teacher {teacher.name!r} is no transformer that reads tokens")
    elif spec.is_layers:
        student_layers(student, teacher)
    else:
        source = EncoderSpec(str(spec.encoder))
        if source.folder() is not None and not reads_tokens(source.skeleton()):
            hint = f"; a static student is static@{source.name}" if has_token_table(source.skeleton()) else ""
            raise InputError(f"--student {student}: it is no transformer that reads tokens{hint}")
