"""The text encoder of a model as modules of sentence-transformers, which loads them without code of
this package."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import nn
from torch.nn.utils.fusion import fuse_linear_bn_eval

from bifocal.models import load_model
from bifocal.onnx.text.tokenizer import TOKENIZER
from bifocal.text.transformer.folder import CONFIG, MODULES, POOLINGS, SENTENCE_CONFIG
from bifocal.text.transformer.network import Transformer, UnitNorm, published_network
from bifocal.text.vectorizers.base import load_vectorizer
from bifocal.text.vectorizers.transformers import PretrainedTransformer, SentenceVectors
from bifocal.text_encoders import (
    BagOfWordsEncoder,
    LinearEncoder,
    ProjectionEncoder,
    TransformerEncoder,
)

ACTIVATIONS: Mapping[type[nn.Module], str] = {
    nn.Identity: "torch.nn.modules.linear.Identity",
    nn.ReLU: "torch.nn.modules.activation.ReLU",
    nn.Tanh: "torch.nn.modules.activation.Tanh",
}
"""Names of activations in the configuration of a ``Dense``."""


def export_sentence_transformer(embedding: Path, text: Path, folder: Path) -> None:
    """Write the modules Transformer, Pooling, Dense and Normalize, whose outputs are a model's
    sentence vectors.

    Args:
        embedding: folder of a model whose text encoder is linear layers over ``SentenceVectors``,
            or a ``TransformerEncoder``.
        text: folder of its vectorizer.

    Raises:
        ValueError: the model has another text encoder.
    """
    vectorizer, encoder = load_vectorizer(text).vectorizer, load_model(embedding).text_encoder
    poolings: tuple[str, ...]
    layers: list[nn.Module]
    if isinstance(vectorizer, SentenceVectors) and isinstance(
        encoder, BagOfWordsEncoder | LinearEncoder
    ):
        tower = vectorizer.tower.cpu()
        network, poolings, layers = (
            tower.transformer,
            tower.poolings,
            [*tower.layers, encoder.projection],
        )
    elif isinstance(vectorizer, SentenceVectors) and isinstance(encoder, ProjectionEncoder):
        tower = vectorizer.tower.cpu()
        network, poolings, layers = (
            tower.transformer,
            tower.poolings,
            [*tower.layers, *encoder.projection.children()],
        )
    elif isinstance(vectorizer, PretrainedTransformer) and isinstance(encoder, TransformerEncoder):
        encoder.merge_adapters()
        network, poolings, layers = encoder.transformer, (encoder.pooling,), [encoder.projection]
    else:
        raise ValueError(
            f"{type(encoder).__name__} over {type(vectorizer).__name__} cannot be written as "
            "modules of sentence-transformers: train LinearEncoder over SentenceVectors, or "
            "TransformerEncoder over Subwords"
        )
    _write_transformer(vectorizer, network, folder)
    pooled = {f"pooling_mode_{name}": name in poolings for name in POOLINGS}
    modules = [("", "Transformer"), ("1_Pooling", "Pooling")]
    _write_json(folder / "1_Pooling" / CONFIG, {"word_embedding_dimension": network.dim, **pooled})
    for layer in _dense_layers([*layers, UnitNorm()]):
        kind = "Normalize" if layer is None else "Dense"
        modules.append((f"{len(modules)}_{kind}", kind))
        if layer is not None:
            _write_dense(folder / modules[-1][0], *layer)
    entries = [
        {
            "idx": number,
            "name": str(number),
            "path": path,
            "type": f"sentence_transformers.models.{kind}",
        }
        for number, (path, kind) in enumerate(modules)
    ]
    _write_json(folder / MODULES, entries)
    _write_json(folder / "config_sentence_transformers.json", {"similarity_fn_name": "cosine"})


def _write_transformer(
    vectorizer: PretrainedTransformer, trained: Transformer, folder: Path
) -> None:
    source = vectorizer.folder
    # The published network also has a pooler, which the library would otherwise fill with random
    # weights.
    network = published_network(source.transformer)
    network.load_state_dict(trained.network.state_dict(), strict=False)
    network.save_pretrained(folder)
    vectorizer.tokenizer.save(folder / TOKENIZER)
    padding = vectorizer.tokenizer.tokenizer.id_to_token(source.config.get("pad_token_id") or 0)
    # This class reads tokenizer.json as it is; the class of a network may rebuild it from other
    # options.
    tokenizer = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": source.max_tokens,
    }
    _write_json(folder / "tokenizer_config.json", tokenizer | {"pad_token": padding})
    _write_json(
        folder / SENTENCE_CONFIG, {"max_seq_length": source.max_tokens, "do_lower_case": False}
    )


def _dense_layers(modules: Iterable[nn.Module]) -> list[tuple[nn.Linear, nn.Module] | None]:
    """Return linear layers with their activations in evaluation mode, and None for a division by
    the norm."""
    layers: list[tuple[nn.Linear, nn.Module] | None] = []
    for module in modules:
        last = layers[-1] if layers else None
        if isinstance(module, nn.Linear):
            layers.append((module, nn.Identity()))
        elif isinstance(module, UnitNorm):
            layers.append(None)
        elif last is not None and isinstance(module, nn.BatchNorm1d):
            layers[-1] = (fuse_linear_bn_eval(last[0], module), last[1])
        elif last is not None and not isinstance(module, nn.Dropout):
            layers[-1] = (last[0], module)
    return layers


def _write_dense(folder: Path, linear: nn.Linear, activation: nn.Module) -> None:
    config = {
        "in_features": linear.in_features,
        "out_features": linear.out_features,
        "bias": linear.bias is not None,
        "activation_function": ACTIVATIONS[type(activation)],
    }
    _write_json(folder / CONFIG, config)
    weights = {
        f"linear.{name}": tensor.contiguous() for name, tensor in linear.state_dict().items()
    }
    save_file(weights, folder / "model.safetensors")


def _write_json(file: Path, content: Any) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
