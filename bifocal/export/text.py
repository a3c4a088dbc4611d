"""Export of text encoders behind pretrained networks: one ONNX graph from the ids of subwords to
embeddings."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import onnx
import torch
from onnx import TensorProto, helper
from onnx.compose import add_prefix
from torch import Tensor, nn

from bifocal.backbones.open_clip import OpenClipBackbone
from bifocal.durable.cached import write_cached
from bifocal.export.encoders import Encoder, export_encoder
from bifocal.export.graphs.parity import Parity, random_sentences, relative_difference
from bifocal.export.graphs.pretrained import sentence_graph
from bifocal.export.graphs.write import Shape, check_shapes, run_in_fresh_process, write_graph
from bifocal.models import load_model
from bifocal.onnx.pointing.similarity import SENTENCES
from bifocal.onnx.sessions import open_session, run_graph
from bifocal.onnx.text.sentences import open_readers
from bifocal.text.transformer.clip_bpe import tower_tokenizer
from bifocal.text.transformer.folder import TransformerFolder
from bifocal.text.transformer.network import SentenceTower
from bifocal.text.vectorizers.base import Vectorizer, load_vectorizer
from bifocal.text.vectorizers.combined import Concatenated
from bifocal.text.vectorizers.open_clip_text import OpenClipText
from bifocal.text.vectorizers.transformers import SentenceVectors, TransformerTokens

IDS: dict[str, Shape] = {"ids": ("batch", "time"), "lengths": ("batch",)}


class TextTower(nn.Module):
    """Vectors (B, d) of sentences from padded ids (B, context length)."""

    def __init__(self, backbone: OpenClipBackbone) -> None:
        super().__init__()
        self.network = backbone.network.cpu()

    def forward(self, ids: Tensor) -> Tensor:
        vectors: Tensor = self.network.encode_text(ids)
        return vectors


def has_network(text: Path) -> bool:
    """Return whether the graph of the text encoder must contain networks, or join the vectors, of a
    vectorizer."""
    vectorizer = load_vectorizer(text).vectorizer
    return (
        isinstance(vectorizer, Concatenated | SentenceVectors) or _network(vectorizer) is not None
    )


def export_text_encoder(model_directory: Path, text: Path, file: Path) -> None:
    """Write the text encoder with its vectorizer's network: ``values`` (batch, time) int64 subwords
    and ``lengths`` (batch,), or with ``Concatenated`` also ``values_1`` (batch, K) float32 and so
    on.
    """
    export_encoder(model_directory, "text_encoder", file)
    fronts: list[onnx.ModelProto | int] = []
    with TemporaryDirectory() as folder:
        for number, part in enumerate(_parts(load_vectorizer(text).vectorizer)):
            graph = Path(folder) / str(number) / "graph.onnx"
            graph.parent.mkdir()
            if isinstance(part, SentenceVectors):
                graph = export_sentences(part.folder, graph.parent)
            elif _network(part) is not None:
                run_in_fresh_process(_export, text, number, graph)
            fronts.append(onnx.load(graph) if graph.exists() else part.format.dim)
        is_large = any(Path(folder).glob("*/*.data"))  # above the 2 GB of a file
    model = _joined(fronts, onnx.load(file))
    onnx.save(model, file, save_as_external_data=is_large, location=f"{file.name}.data")


def export_sentences(encoder: TransformerFolder, folder: Path) -> Path:
    """Write ``sentences.onnx`` of an encoder, from ``ids`` and ``lengths`` to vectors."""
    file, graph = folder / SENTENCES, sentence_graph(encoder)
    if graph is not None:
        onnx.save(graph, file)
        return file
    write_cached([encoder.identity()], file, run_in_fresh_process, _export_sentences, encoder)
    return file


def compare_text_encoder(
    model_directory: Path, text: Path, file: Path, seed: int
) -> Iterator[Parity]:
    """Compare an exported graph with vectorizer and model in torch on random sentences, as services
    read them."""
    model, vectorizer = cast(Encoder, load_model(model_directory)).eval(), load_vectorizer(text)
    readers, session = open_readers(text), open_session(file)
    for batch, length, words in random_sentences(seed):
        sentences = [" ".join(sentence) for sentence in words]
        outputs = run_graph(
            session, [array for reader in readers for array in reader.batch(sentences)]
        )
        with torch.inference_mode():
            values = model.embed_captions(vectorizer.vectorize(sentences))
        pairs = zip(outputs, (values,) if isinstance(values, Tensor) else values, strict=True)
        yield Parity(
            "text_encoder",
            batch,
            length,
            max(relative_difference(o, v.numpy(), 1.0) for o, v in pairs),
        )


def _parts(vectorizer: Vectorizer) -> Sequence[Vectorizer]:
    return vectorizer.fitted_parts if isinstance(vectorizer, Concatenated) else [vectorizer]


def _network(
    vectorizer: Vectorizer,
) -> tuple[nn.Module, dict[str, Shape], tuple[Tensor, ...]] | None:
    """Return the network of a vectorizer, its inputs and an example of them; None without a
    network."""
    if isinstance(vectorizer, TransformerTokens):
        special = sum(len(ids) for ids in vectorizer.tokenizer.special_ids())
        ids, lengths = (
            torch.ones(3, 4 + special, dtype=torch.int64),
            torch.tensor([4, 2, 3]) + special,
        )
        return vectorizer.states.cpu(), IDS, (ids, lengths)
    if not isinstance(vectorizer, OpenClipText):
        return None
    backbone = vectorizer.backbone
    if tower_tokenizer(backbone.tokenizer, backbone.context_length) is None:
        return None
    example = torch.ones(3, backbone.context_length, dtype=torch.int64)
    return TextTower(backbone), {"ids": ("batch", backbone.context_length)}, (example,)


def _export(text: Path, number: int, file: Path) -> None:
    found = _network(_parts(load_vectorizer(text).vectorizer)[number])
    assert found is not None
    network, shapes, example = found
    outputs = ["vectors"] if isinstance(network, TextTower) else ["states", "words"]
    write_graph(network.eval(), example, shapes, outputs, file)
    check_shapes(file, shapes)


def _export_sentences(encoder: TransformerFolder, file: Path) -> None:
    example = torch.ones(3, 4, dtype=torch.int64), torch.tensor([4, 2, 3])
    write_graph(SentenceTower.load(encoder), example, IDS, ["vectors"], file)
    check_shapes(file, IDS)


def _joined(fronts: Sequence[onnx.ModelProto | int], model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the graph of ``model`` behind graphs of networks and inputs of K numbers, one after
    the other."""
    nodes, inputs, vectors, lengths = list[Any](), list[Any](), list[str](), "lengths"
    for number, front in enumerate(fronts):
        names = [f"{name}_{number}" if number else name for name in ("values", "lengths", "time")]
        counts = helper.make_tensor_value_info(names[1], TensorProto.INT64, ["batch"])
        if isinstance(front, int):
            inputs += [
                helper.make_tensor_value_info(names[0], TensorProto.FLOAT, ["batch", front]),
                counts,
            ]
            vectors.append(names[0])
            continue
        part = add_prefix(front, f"{number}/").graph
        renamed = {value.name: name for value, name in zip(part.input, names, strict=False)}
        for node in part.node:
            node.input[:] = [renamed.get(name, name) for name in node.input]
        (values, *_), time = part.input, part.input[0].type.tensor_type.shape.dim[1]
        values.name = names[0]
        if time.dim_param:
            time.dim_param = names[2]
        nodes, inputs = [*nodes, *part.node], [*inputs, values, counts]
        vectors.append(part.output[0].name)
        lengths = part.output[1].name if len(part.output) > 1 else lengths
        model.graph.initializer.extend(part.initializer)
    if len(vectors) > 1:
        nodes.append(helper.make_node("Concat", vectors, ["joined/vectors"], axis=1))
        vectors = ["joined/vectors"]
    replaced = {"values": vectors[0], "lengths": lengths}
    for node in model.graph.node:
        node.input[:] = [replaced.get(name, name) for name in node.input]
    nodes += model.graph.node
    del model.graph.node[:], model.graph.input[:]
    model.graph.node.extend(nodes)
    model.graph.input.extend(inputs)
    return model
