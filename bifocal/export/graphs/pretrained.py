"""Graphs of pretrained networks, built from their weights without torch."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from safetensors.numpy import load_file

from bifocal.export.graphs import IR_VERSION
from bifocal.text.transformer.folder import TransformerFolder

Array = NDArray[Any]
Weights = Mapping[str, Array]
OPSET = 18
STRIDES = (1, 2, 2, 2, 1, 2, 1)
"""Of the first block of each stage of an EfficientNet."""
EPSILON = 1e-3
"""Of the batch normalizations of EfficientNet-Lite."""


class GraphWriter:
    """Nodes of a graph, one after the other; arrays among their inputs become constants."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def __call__(self, operator: str, *inputs: str | Array | np.generic, **attributes: Any) -> str:
        """Append a node, and return the name of its output."""
        names = [value if isinstance(value, str) else self._constant(value) for value in inputs]
        output = f"{operator}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, names, [output], **attributes))
        return output

    def _constant(self, values: Array | np.generic) -> str:
        name = f"constant_{len(self.constants)}"
        kind = np.float32 if values.dtype.kind == "f" else np.int64
        self.constants.append(numpy_helper.from_array(np.asarray(values, kind), name))
        return name

    def model(
        self, inputs: Sequence[tuple[str, int, Sequence[Any]]], output: tuple[str, Sequence[Any]]
    ) -> onnx.ModelProto:
        """Return the graph, which ends with the last node."""
        name, shape = output
        self.nodes[-1].output[:] = [name]
        graph = helper.make_graph(
            self.nodes,
            "network",
            [helper.make_tensor_value_info(*value) for value in inputs],
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)],
            self.constants,
        )
        return helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION
        )


def efficientnet_lite_graph(weights: Weights) -> onnx.ModelProto:
    """Return the class logits (B, h, w, K) in the cells of images (B, 3, H, W) uint8.

    Tan and Le, "EfficientNet", ICML 2019, table 1, without squeeze-and-excitation, with ReLU6. The
    padding is TensorFlow's. Batch normalizations are folded into the convolutions. The weights have
    the names of timm.
    """
    add = GraphWriter()

    def convolve(values: str, layer: str, norm: str, stride: int = 1) -> str:
        kernel = weights[f"{layer}.weight"]
        scale = weights[f"{norm}.weight"] / np.sqrt(weights[f"{norm}.running_var"] + EPSILON)
        bias = weights[f"{norm}.bias"] - weights[f"{norm}.running_mean"] * scale
        groups = len(kernel) if layer.endswith("conv_dw") else 1
        return add(
            "Conv", values, kernel * scale[:, None, None, None], bias,
            auto_pad="SAME_UPPER", strides=[stride, stride], group=groups,
        )  # fmt: skip

    def clip(values: str) -> str:
        return add("Clip", values, np.float32(0), np.float32(6))

    middle = np.float32(127.5)
    values = add("Div", add("Sub", add("Cast", "pixels", to=TensorProto.FLOAT), middle), middle)
    values = clip(convolve(values, "conv_stem", "bn1", 2))
    for block in dict.fromkeys(
        name[: name.index(".", 9)] for name in weights if name[:6] == "blocks"
    ):
        _, stage, number = block.split(".")
        stride = 1 if int(number) else STRIDES[int(stage)]
        layers = [
            name
            for name in ("conv_pw", "conv_dw", "conv_pwl")
            if f"{block}.{name}.weight" in weights
        ]
        if len(layers) == 2:  # the first stage has no expansion
            layers.reverse()
        before = values
        for norm, layer in enumerate(layers, start=1):
            values = convolve(
                values, f"{block}.{layer}", f"{block}.bn{norm}", stride if layer == "conv_dw" else 1
            )
            if norm < len(layers):
                values = clip(values)
        if int(number):
            values = add("Add", values, before)
    values = clip(convolve(values, "conv_head", "bn2"))
    cells = add("Transpose", values, perm=[0, 2, 3, 1])
    add("Add", add("MatMul", cells, weights["classifier.weight"].T), weights["classifier.bias"])
    return add.model(
        [("pixels", TensorProto.UINT8, ["batch", 3, "height", "width"])],
        ("logits", ["batch", "rows", "columns", len(weights["classifier.bias"])]),
    )


def sentence_graph(encoder: TransformerFolder) -> onnx.ModelProto | None:
    """Return the vectors (B, K) of sentences of ids (B, T), lengths (B,); None if the encoder is
    not a BERT with GELU, the mean of tokens and at most a norm behind it.
    """
    config = encoder.config
    kind = config.get("model_type"), config.get("hidden_act", "gelu"), encoder.poolings
    if kind != ("bert", "gelu", ("mean_tokens",)) or any(encoder.layers):
        return None
    model = bert_graph(load_file(encoder.transformer / "model.safetensors"), config)
    return normalized(model, "vectors") if encoder.layers else model


def normalized(model: onnx.ModelProto, name: str = "embeddings") -> onnx.ModelProto:
    """Return a graph whose only output is divided by its norm and called ``name``."""
    (output,) = model.graph.output
    inner = f"{name}_of_any_norm"
    for node in model.graph.node:
        node.output[:] = [inner if value == output.name else value for value in node.output]
    node = helper.make_node("LpNormalization", [inner], [name], axis=1, p=2)
    model.graph.node.append(node)
    output.name = name
    return model


def bert_graph(weights: Weights, config: Mapping[str, Any]) -> onnx.ModelProto:
    """Return the mean (B, K) of a BERT's last states, over sentences of ids (B, T), lengths (B,).

    Devlin et al., NAACL 2019; Reimers and Gurevych, "Sentence-BERT", EMNLP 2019. The weights have
    the names of Hugging Face.
    """
    add, heads = GraphWriter(), config["num_attention_heads"]
    dim = config["hidden_size"]

    def linear(values: str, name: str) -> str:
        return add(
            "Add", add("MatMul", values, weights[f"{name}.weight"].T), weights[f"{name}.bias"]
        )

    def normalized(values: str, name: str) -> str:
        return add(
            "LayerNormalization", values, weights[f"{name}.weight"], weights[f"{name}.bias"],
            axis=-1, epsilon=config["layer_norm_eps"],
        )  # fmt: skip

    def split(values: str, *order: int) -> str:
        return add(
            "Transpose", add("Reshape", values, np.array([0, 0, heads, dim // heads])), perm=order
        )

    time = add("Squeeze", add("Shape", "ids", start=1, end=2), np.array([0]))
    steps = add("Range", np.int64(0), time, np.int64(1))
    inside = add("Less", steps, add("Unsqueeze", "lengths", np.array([1])))
    hidden = add(
        "Where", add("Unsqueeze", inside, np.array([1, 2])), np.float32(0), np.float32(-1e9)
    )
    mask = add("Cast", add("Unsqueeze", inside, np.array([2])), to=TensorProto.FLOAT)
    words, places, kinds = (
        weights[f"embeddings.{name}_embeddings.weight"]
        for name in ("word", "position", "token_type")
    )
    values = add("Add", add("Gather", words, "ids"), add("Gather", places + kinds[0], steps))
    values = normalized(values, "embeddings.LayerNorm")
    for layer in range(config["num_hidden_layers"]):
        name = f"encoder.layer.{layer}"
        query, key, value = (
            split(linear(values, f"{name}.attention.self.{part}"), *order)
            for part, order in (
                ("query", (0, 2, 1, 3)),
                ("key", (0, 2, 3, 1)),
                ("value", (0, 2, 1, 3)),
            )
        )
        scores = add("Mul", add("MatMul", query, key), np.float32((dim // heads) ** -0.5))
        attended = add("MatMul", add("Softmax", add("Add", scores, hidden), axis=-1), value)
        attended = add(
            "Reshape", add("Transpose", attended, perm=[0, 2, 1, 3]), np.array([0, 0, dim])
        )
        attended = linear(attended, f"{name}.attention.output.dense")
        values = normalized(add("Add", attended, values), f"{name}.attention.output.LayerNorm")
        wide = linear(values, f"{name}.intermediate.dense")
        gelu = add(
            "Mul",
            wide,
            add("Add", add("Erf", add("Mul", wide, np.float32(0.5**0.5))), np.float32(1)),
        )
        narrow = linear(add("Mul", gelu, np.float32(0.5)), f"{name}.output.dense")
        values = normalized(add("Add", narrow, values), f"{name}.output.LayerNorm")
    total = add("ReduceSum", add("Mul", values, mask), np.array([1]), keepdims=0)
    add("Div", total, add("ReduceSum", mask, np.array([1]), keepdims=0))
    return add.model(
        [("ids", TensorProto.INT64, ["batch", "time"]), ("lengths", TensorProto.INT64, ["batch"])],
        ("vectors", ["batch", dim]),
    )
