"""Export of a backbone's pointing head: graphs of class logits and of phrases, and class
vectors."""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from numpy.typing import ArrayLike, NDArray
from safetensors.numpy import load_file
from torch import Tensor, nn

from bifocal.backbones.networks import is_backbone
from bifocal.backbones.state import load_weights_file
from bifocal.backbones.timm.backbone import BackboneConfig, TimmBackbone
from bifocal.durable import file_digest
from bifocal.durable.cached import write_cached
from bifocal.export.class_sentences import write_class_vectors, write_head_texts
from bifocal.export.graphs.parity import Parity, relative_difference
from bifocal.export.graphs.pretrained import efficientnet_lite_graph
from bifocal.export.graphs.quantization import quantize_graph
from bifocal.export.graphs.write import PROCESSES, run_in_fresh_process, write_graph
from bifocal.export.text import export_sentences
from bifocal.localization.heads import ClassMixture
from bifocal.onnx.pointing.head import GRAPH
from bifocal.onnx.pointing.similarity import SENTENCES, VECTORS
from bifocal.onnx.sessions import open_session, run_graph
from bifocal.onnx.text.tokenizer import TOKENIZER
from bifocal.text.transformer.folder import TransformerFolder
from bifocal.text.transformer.network import sentence_vectors

SHAPE = ("batch", 3, "height", "width")
TRACED, COMPARED = 128, ((64, 96), (160, 128))
"""Side of the traced image, and sides of the compared images, pixels."""


class ClassLogits(nn.Module):
    """Logits (B, h, w, K) of the classes in each cell of images (B, 3, H, W) uint8."""

    def __init__(self, backbone: TimmBackbone, rows: ArrayLike | None) -> None:
        super().__init__()
        own = backbone.network.get_classifier()
        if not isinstance(own, nn.Linear):
            raise ValueError(f"the classifier of {backbone.name} is {own}, expected a linear layer")
        self.backbone, self.network, self.classifier = backbone, backbone.network, own
        if rows is not None:
            weight = torch.as_tensor(np.asarray(rows))
            self.classifier = nn.Linear(weight.shape[1], len(weight), bias=False)
            self.classifier.weight = nn.Parameter(weight, requires_grad=False)

    def forward(self, pixels: Tensor) -> Tensor:
        logits: Tensor = self.classifier(self.backbone.feature_map(pixels, None).movedim(1, 3))
        return logits


def export_head(
    description: Mapping[str, Any], weights: Path, head: ClassMixture, folder: Path, seed: int
) -> list[Parity]:
    """Write the pointing head of a backbone to ``folder``, and compare its graph with torch.

    Graphs are exported once for a backbone, and once for a sentence encoder: the user's cache keeps
    them.
    """
    classes = head.class_texts()
    module = load_class_logits(description, weights, head)
    folder.mkdir(parents=True, exist_ok=True)
    key = [
        dict(description),
        file_digest(weights),
        None if head.classes is None else file_digest(Path(head.classes)),
    ]
    graph, logits = folder / GRAPH, (_export_logits, description, weights, head)
    exports = [partial(write_cached, key, graph, run_in_fresh_process, *logits)]
    half = [*description["preprocessing"]["mean"], *description["preprocessing"]["std"]]
    if head.classes is None and is_backbone(weights) and set(half) == {0.5}:
        exports = [partial(onnx.save, efficientnet_lite_graph(load_file(weights)), graph)]
    encoder = head.sentence_encoder()
    if encoder is not None:

        def encode(texts: Sequence[str]) -> NDArray[np.float32]:
            return sentence_vectors(encoder, texts).numpy()

        exports.append(partial(write_class_vectors, folder / VECTORS, classes, encode))
        key = [encoder.identity(), "int8"]
        exports.append(partial(write_cached, key, folder / SENTENCES, _write_sentences, encoder))
        encoder.tokenizer().save(folder / TOKENIZER)
    with ThreadPoolExecutor(PROCESSES) as threads:
        list(threads.map(lambda export: export(), exports))
    interpolation = description["preprocessing"]["interpolation"]
    write_head_texts(folder, classes, head.values(), interpolation)
    return list(_compare(module, folder / GRAPH, seed))


def load_class_logits(
    description: Mapping[str, Any], weights: Path, head: ClassMixture
) -> ClassLogits:
    """Return the module of a backbone's class logits, with the weights of a file."""
    preprocessing = description["preprocessing"]
    config = BackboneConfig(
        description["backbone"],
        TRACED,
        "square",
        preprocessing["mean"],
        preprocessing["std"],
        description["model_arguments"],
    )
    backbone, classes = TimmBackbone(config, with_classifier=True), head.class_texts()
    load_weights_file(backbone, weights)
    module = ClassLogits(backbone, classes.weight).eval()
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (1, 3, TRACED, TRACED), generator=generator, dtype=torch.uint8)
    with torch.inference_mode():
        logits = module(pixels)
        if classes.weight is None and not torch.allclose(
            logits.mean(dim=(1, 2)),
            backbone.network(backbone.normalize(pixels)),
            rtol=1e-3,
            atol=1e-3,
        ):
            raise ValueError(
                f"the classifier of {backbone.name} does not read the mean of the last map: it "
                "cannot score cells"
            )
    if logits.shape[3] != len(classes.names):
        raise ValueError(
            f"the classifier of {backbone.name} has {logits.shape[3]} classes, and there are "
            f"{len(classes.names)} names: give names, definitions and rows of its classes with "
            "ClassMixture(classes=...)"
        )
    return module


def _export_logits(
    description: Mapping[str, Any], weights: Path, head: ClassMixture, file: Path
) -> None:
    module = load_class_logits(description, weights, head)
    side = {"pixels": ("batch", 3, TRACED, TRACED)}
    write_graph(
        module, [torch.zeros(2, 3, TRACED, TRACED, dtype=torch.uint8)], side, ["logits"], file
    )
    # Dynamic sides would freeze torch's symbolic shapes for minutes in networks whose padding
    # depends on the size. All multiples of the stride have the same padding, so the traced graph
    # holds for them: ``_compare`` checks it.
    model = onnx.load(file)
    del model.graph.value_info[:]
    for value, names in (
        (model.graph.input[0], SHAPE),
        (model.graph.output[0], ("batch", "rows", "columns", None)),
    ):
        for dimension, name in zip(value.type.tensor_type.shape.dim, names, strict=True):
            if isinstance(name, str):
                dimension.dim_param = name
    onnx.save(model, file)


def _write_sentences(encoder: TransformerFolder, file: Path) -> None:
    export_sentences(encoder, file.parent)
    quantize_graph(file)


def _compare(module: ClassLogits, file: Path, seed: int) -> Iterator[Parity]:
    session, generator = open_session(file), torch.Generator().manual_seed(seed)
    for batch, (height, width) in enumerate(COMPARED, start=1):
        pixels = torch.randint(
            0, 256, (batch, 3, height, width), generator=generator, dtype=torch.uint8
        )
        with torch.inference_mode():
            expected = module(pixels).numpy()
        (logits,) = run_graph(session, (pixels.numpy(),))
        yield Parity("pointing", batch, expected.shape[1], relative_difference(logits, expected))
