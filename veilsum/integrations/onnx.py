"""A linear head as an ONNX model, for any runtime that reads ONNX. Needs the extra `onnx`, not PyTorch."""

import json
import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from veilsum.calibration.head_file import NO_TEMPERATURE
from veilsum.integrations.linear import LinearHead, Source
from veilsum.protocol.errors import Misuse

_OPSET, _IR = 18, 9
_SHORTEST = 1e-12
"""As `torch.nn.functional.normalize`: a row of zeros stays one."""


def save_onnx(
    source: Source, path: str | os.PathLike[str], *, notes: Mapping[str, Any] | None = None
) -> None:
    """Write a head as an ONNX model.

    Its input `features` is (n, dim) float32, of any length. Its outputs are `label` (n,) int64 class indices, `logits` (n, C) and, if the
    head has a temperature, `probabilities` (n, C). Without a temperature a UserWarning says that there are none.

    `notes` become metadata of the model, each value as JSON.
    """
    try:
        import onnx  # noqa: PLC0415 - an extra
        from onnx import TensorProto, helper, numpy_helper  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise Misuse("writing ONNX needs an extra: pip install 'veilsum[onnx]'") from error
    head = LinearHead.of(source)
    weights, bias = head.over(head.temperature or 1.0)
    constants = {"weights": weights, "bias": bias, "shortest": np.array(_SHORTEST), "last": np.array([-1])}
    nodes = [
        helper.make_node("ReduceL2", ["features", "last"], ["length"], keepdims=1),
        helper.make_node("Max", ["length", "shortest"], ["divisor"]),
        helper.make_node("Div", ["features", "divisor"], ["unit"]),
        helper.make_node("Gemm", ["unit", "weights", "bias"], ["logits"]),
        helper.make_node("ArgMax", ["logits"], ["label"], axis=1, keepdims=0),
    ]
    dim, classes = weights.shape
    outputs = [
        helper.make_tensor_value_info("label", TensorProto.INT64, ["n"]),
        helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["n", classes]),
    ]
    if head.temperature is None:
        warnings.warn(NO_TEMPERATURE, stacklevel=2)
    else:
        nodes.append(helper.make_node("Softmax", ["logits"], ["probabilities"], axis=1))
        outputs.append(helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["n", classes]))
    graph = helper.make_graph(
        nodes,
        "head",
        [helper.make_tensor_value_info("features", TensorProto.FLOAT, ["n", dim])],
        outputs,
        [
            numpy_helper.from_array(each if name == "last" else each.astype(np.float32), name)
            for name, each in constants.items()
        ],
    )
    model = helper.make_model(
        graph, producer_name="veilsum", opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=_IR
    )
    helper.set_model_props(model, {name: json.dumps(value) for name, value in (notes or {}).items()})
    onnx.checker.check_model(model, full_check=True)
    Path(path).write_bytes(model.SerializeToString())
