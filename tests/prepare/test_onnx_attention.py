"""The rewriting of exported attention: the same numbers from fewer operators, and nothing it does not know is touched."""

from __future__ import annotations

import numpy as np
import pytest

from distilbench.prepare.onnx_attention import split_heads_in_attention

onnx = pytest.importorskip("onnx", reason="the extra onnx is not installed: no onnx")
onnxruntime = pytest.importorskip("onnxruntime", reason="the extra onnx is not installed: no onnxruntime")

HEADS, WIDTH = 4, 32


def attention_model(*, extra_output: str = "", perm: tuple[int, ...] = (0, 2, 1, 3)):  # type: ignore[no-untyped-def]
    """Attention as the exporter writes it: reshape and transpose each input, transpose and reshape the output."""
    make, numbers = onnx.helper.make_node, onnx.numpy_helper.from_array
    nodes = []
    for name in "qkv":
        nodes.append(make("Reshape", [name, "split"], [f"{name}_4d"]))
        nodes.append(make("Transpose", [f"{name}_4d"], [f"{name}_heads"], perm=perm))
    nodes += [
        make("Attention", ["q_heads", "k_heads", "v_heads"], ["mixed"]),
        make("Transpose", ["mixed"], ["mixed_4d"], perm=perm),
        make("Reshape", ["mixed_4d", "merge"], ["out"]),
    ]
    value = onnx.helper.make_tensor_value_info
    outputs = [value("out", onnx.TensorProto.FLOAT, None)]
    if extra_output:
        outputs.append(value(extra_output, onnx.TensorProto.FLOAT, None))
    graph = onnx.helper.make_graph(
        nodes,
        "attention",
        [value(name, onnx.TensorProto.FLOAT, ["B", "T", WIDTH]) for name in "qkv"],
        outputs,
        [numbers(np.array([0, 0, HEADS, -1]), "split"), numbers(np.array([0, 0, -1]), "merge")],
    )
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 23)], ir_version=10)


def run(model):  # type: ignore[no-untyped-def]
    generator = np.random.default_rng(0)
    given = {name: generator.normal(size=(3, 7, WIDTH)).astype(np.float32) for name in "qkv"}
    return onnxruntime.InferenceSession(model.SerializeToString()).run(["out"], given)[0]


def test_the_same_numbers_from_one_operator() -> None:
    model = attention_model()
    expected = run(model)
    assert split_heads_in_attention(model, HEADS) == 1
    assert [node.op_type for node in model.graph.node] == ["Attention"]
    np.testing.assert_allclose(run(model), expected, atol=1e-6)


@pytest.mark.parametrize("between", ["mixed", "mixed_4d"])
def test_attention_whose_inner_values_are_read_stays(between: str) -> None:
    model = attention_model(extra_output=between)
    before = model.SerializeToString()
    assert split_heads_in_attention(model, HEADS) == 0 and model.SerializeToString() == before


def test_another_transposition_stays() -> None:
    model = attention_model(perm=(0, 1, 2, 3))
    before = model.SerializeToString()
    assert split_heads_in_attention(model, HEADS) == 0 and model.SerializeToString() == before
