"""A linear head as an ONNX model, for any runtime that reads ONNX."""

import json
import os
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from client_sdk.result import Result
from veilsum.export.linear import HeadSource, layer_of, linear_head

_OPSET_VERSION, _IR_VERSION = 18, 9
_LENGTH_MIN, _PEAK_MIN = 1e-12, 1e-37
"""As `veilsum.export.torch.CalibratedHead.forward`: a row of zeros stays one."""


def write_model(source: HeadSource, path: str | os.PathLike[str]) -> None:
    """See `veilsum.export.to_onnx`."""
    head = linear_head(source)
    weights, bias = layer_of(head, head.choose_temperature())
    constants = {
        "weights": weights,
        "bias": bias,
        "shortest": np.array(_LENGTH_MIN),
        "smallest": np.array(_PEAK_MIN),
        "last": np.array([-1]),
    }
    direction = "scaled"
    nodes = [
        helper.make_node("Abs", ["features"], ["magnitudes"]),
        helper.make_node("ReduceMax", ["magnitudes", "last"], ["peak"], keepdims=1),
        helper.make_node("Max", ["peak", "smallest"], ["scale"]),
        helper.make_node("Div", ["features", "scale"], [direction]),
    ]
    if head.head.centre is not None:
        constants["centre"], direction = head.head.centre, "centred"
        nodes += [
            helper.make_node("ReduceL2", ["scaled", "last"], ["length"], keepdims=1),
            helper.make_node("Mul", ["length", "centre"], ["shift"]),
            helper.make_node("Sub", ["scaled", "shift"], [direction]),
        ]
    nodes += [
        helper.make_node("ReduceL2", [direction, "last"], ["norm"], keepdims=1),
        helper.make_node("Max", ["norm", "shortest"], ["divisor"]),
        helper.make_node("Div", [direction, "divisor"], ["unit"]),
        helper.make_node("Gemm", ["unit", "weights", "bias"], ["logits"]),
        helper.make_node("ArgMax", ["logits"], ["label"], axis=1, keepdims=0),
    ]
    dim, classes = weights.shape
    outputs = [
        helper.make_tensor_value_info("label", TensorProto.INT64, ["n"]),
        helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["n", classes]),
    ]
    if head.temperature is not None:
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
        graph,
        producer_name="veilsum",
        opset_imports=[helper.make_opsetid("", _OPSET_VERSION)],
        ir_version=_IR_VERSION,
    )
    if isinstance(source, Result):
        record = source.record
        origin = {
            "study": record.name,
            "period": record.period,
            "round": record.round,
            "classes": source.spec.question.classes,
        }
        helper.set_model_props(model, {name: json.dumps(value) for name, value in origin.items()})
    onnx.checker.check_model(model, full_check=True)
    Path(path).write_bytes(model.SerializeToString())
