"""Where a student's encoder starts: the teacher with layers dropped, or any other encoder."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from distilbench.encoder import EncoderSpec, transformer_config
from distilbench.errors import InputError

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

HALF = "half"
_NO_LAYERS = "which has no encoder.layer list"


def student_source(student: str, teacher: EncoderSpec) -> EncoderSpec:
    """The encoder that the student starts from and whose tokenizer it keeps. A student reads sentences without a prompt."""
    if is_layers(student):
        return replace(teacher, prompt="")
    return EncoderSpec(student, max_tokens=teacher.max_tokens)


def is_layers(student: str) -> bool:
    """Whether the student is the teacher with layers dropped, rather than an encoder of its own."""
    return student == HALF or student.startswith("layers:")


def absolute_student(student: str) -> str:
    """The same student for a process in another working folder."""
    return student if is_layers(student) else EncoderSpec(student).absolute().name


def load_student(student: str, teacher: EncoderSpec, device: str) -> SentenceTransformer:
    """Transformer and mean pooling to start from, in evaluation mode.

    `student` is "half" (every second layer of the teacher), "layers:0,2,5" (these layers of it), or the name or folder
    of an encoder.

    Raises:
        InputError: a layer that the teacher does not have, or a teacher whose layers cannot be told apart.
    """
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling

    transformer = student_source(student, teacher).load(device)[0]
    if is_layers(student):
        _keep_layers(transformer.model, student)
    pooling = Pooling(transformer.get_embedding_dimension(), pooling_mode="mean")
    return SentenceTransformer(modules=[transformer, pooling], device=device).eval()


def student_width(student: str, teacher: EncoderSpec) -> int:
    """Width of the student's pooled states, that of its transformer.

    Raises:
        InputError: the encoder is not there.
    """
    source = student_source(student, teacher)
    folder = source.folder()
    config = transformer_config(folder) if folder else {}
    return int(config["hidden_size"] if "hidden_size" in config else source.load()[0].get_embedding_dimension())


def describe_student(student: str, teacher: EncoderSpec) -> str:
    """How tables name the start."""
    return f"{teacher.title} {student}" if is_layers(student) else EncoderSpec(student).title


def check_student(student: str, teacher: EncoderSpec) -> None:
    """Check a student's name before anything is loaded.

    Raises:
        InputError: a layer that the teacher does not have, or an encoder that is not there.
    """
    if not is_layers(student):
        EncoderSpec(student).folder()
    elif folder := teacher.folder():
        config = transformer_config(folder)
        if "num_hidden_layers" not in config:
            raise InputError(f"--student {student}: the teacher is a {config.get('model_type')}, {_NO_LAYERS}")
        _layers(student, int(config["num_hidden_layers"]))


def _layers(student: str, count: int) -> list[int]:
    if student == HALF:
        kept = list(range(1, count, 2))
    else:
        try:
            kept = [int(part) for part in student.removeprefix("layers:").split(",")]
        except ValueError:
            kept = []
    if not kept or any(not 0 <= i < count for i in kept) or sorted(set(kept)) != kept:
        raise InputError(
            f"--student {student}: expected rising layer numbers from 0 to {count - 1}, such as layers:0,2,4"
        )
    return kept


def _keep_layers(model: object, student: str) -> None:
    from torch import nn

    stack = getattr(getattr(model, "encoder", None), "layer", None)
    if not isinstance(stack, nn.ModuleList):
        raise InputError(f"--student {student}: the teacher is a {type(model).__name__}, {_NO_LAYERS}")
    kept = _layers(student, len(stack))
    model.encoder.layer = nn.ModuleList(stack[i] for i in kept)  # type: ignore[attr-defined]
    model.config.num_hidden_layers = len(kept)  # type: ignore[attr-defined]
