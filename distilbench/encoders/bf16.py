"""Whether a processor is fit for encoding in bfloat16."""

from __future__ import annotations

from distilbench.errors import InputError

INSTRUCTIONS = ("avx512_bf16", "amx_bf16", "bf16", "sve_bf16")
"""What `torch.cpu.get_capabilities` calls those that multiply bfloat16 numbers: of x86 and of Arm."""


def check_bf16() -> None:
    """Refuse a processor that has no instructions for bfloat16: it takes many times as long as in float32.

    Raises:
        InputError: it has none.
    """
    import torch

    capable = torch.cpu.get_capabilities()
    if not any(capable.get(name) for name in INSTRUCTIONS):
        raise InputError(
            "--backend bf16: this processor has no instructions for bfloat16 (AVX512-BF16, AMX, or Arm's); "
            "expected torch or onnx"
        )
