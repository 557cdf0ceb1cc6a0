"""Whether a processor is fit for encoding in bfloat16."""

from __future__ import annotations

import time

from distilbench.errors import InputError

INSTRUCTIONS = ("avx512_bf16", "amx_bf16", "bf16", "sve_bf16")
"""What `torch.cpu.get_capabilities` calls those that multiply bfloat16 numbers: of x86 and of Arm."""
PRODUCT = (1024, 384, 1536)
"""Tokens, inputs and outputs of the product that is timed: a feed-forward layer of a small encoder."""
ROUNDS = 7


def check_bf16() -> None:
    """Refuse a processor that is slower in bfloat16 than in float32.

    One without the instructions takes many times as long. One that has them may be slower too (AVX512-BF16 without AMX), so
    a product of matrices is timed.
    """
    import torch

    capable = torch.cpu.get_capabilities()
    if not any(capable.get(name) for name in INSTRUCTIONS):
        raise InputError(
            "--backend bf16: this processor has no instructions for bfloat16 (AVX512-BF16, AMX, or Arm's); "
            "expected torch or onnx"
        )
    if (times := bf16_time()) > 1:
        raise InputError(
            f"--backend bf16: this processor takes {times:.1f} times as long in bfloat16 as in float32 (a product of "
            "matrices, timed here); expected torch or onnx"
        )


def bf16_time() -> float:
    """How many times as long a product of matrices takes in bfloat16 as in float32: the fastest of rounds in turns, each."""
    import torch

    tokens, inputs, outputs = PRODUCT
    taken: dict[torch.dtype, list[float]] = {torch.float32: [], torch.bfloat16: []}
    operands = {
        dtype: (torch.ones(tokens, inputs, dtype=dtype), torch.ones(outputs, inputs, dtype=dtype)) for dtype in taken
    }
    for _ in range(ROUNDS):
        for dtype, (left, right) in operands.items():
            began = time.perf_counter()
            torch.nn.functional.linear(left, right)
            taken[dtype].append(time.perf_counter() - began)
    return min(taken[torch.bfloat16]) / min(taken[torch.float32])
