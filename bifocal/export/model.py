"""Export of a whole model: all graphs, and the files that turn a sentence or an image into their
inputs."""

import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from bifocal.backbones.state import WEIGHTS_FILE
from bifocal.durable import write_json
from bifocal.export.backbone import export_images
from bifocal.export.elmo import GRAPH as ELMO
from bifocal.export.elmo import compare_elmo, export_elmo
from bifocal.export.encoders import Branch, branches, export_encoder
from bifocal.export.graphs.parity import Parity, compare_encoder
from bifocal.export.graphs.write import PROCESSES
from bifocal.export.localizer import compare_localizer, export_localizer
from bifocal.export.pointing import export_head
from bifocal.export.text import compare_text_encoder, export_text_encoder, has_network
from bifocal.features import FeatureStore
from bifocal.models import load_model
from bifocal.models.inputs import check_inputs, zero_shot_skip_reason
from bifocal.onnx.files import CONTRASTIVE
from bifocal.onnx.pointing import FOLDER
from bifocal.onnx.text.tokenizer import TOKENIZER
from bifocal.progress import track
from bifocal.registry import build
from bifocal.text import TextStore, Vocabulary
from bifocal.text.store import CAPTIONS
from bifocal.text.transformer.folder import NETWORK
from bifocal.text.vectorizers.base import load_vectorizer
from bifocal.text.vectorizers.open_clip_text import TOWER


def export_model(
    embedding: Path,
    features: Path,
    text: Path,
    folder: Path,
    *,
    seed: int,
    localizer: Any | None = None,
    pointing: Any | None = None,
) -> list[Parity]:
    """Write a model's graphs and compare them with torch; ``localizer`` None is the image encoder's
    own.

    ``pointing`` is a part of ``bifocal.localization.heads``, or None.
    """
    model = load_model(embedding)
    check_inputs(model, FeatureStore(features), TextStore(text))
    parities = [
        *_export_encoders(embedding, text, folder, seed, localizer),
        *export_images(features, folder, model.image_encoder, seed),
        *_export_vectorizer(text, folder, seed),
    ]
    if zero_shot_skip_reason(FeatureStore(features), load_vectorizer(text)) is None:
        write_json(folder / CONTRASTIVE, {"weights": FeatureStore(features).metadata["weights"]})
    export_localizer(embedding, features, folder, localizer)
    parities += compare_localizer(embedding, folder, seed, localizer)
    if pointing is not None:
        head = build("bifocal.localization.heads", pointing)
        parities += export_head(
            FeatureStore(features).metadata, features / WEIGHTS_FILE, head, folder / FOLDER, seed
        )
    return parities


def _export_encoders(
    embedding: Path, text: Path, folder: Path, seed: int, localizer: Any | None
) -> Iterator[Parity]:
    def export(branch: Branch) -> Iterator[Parity]:
        file = folder / f"{branch}.onnx"
        if branch == "text_encoder" and has_network(text):
            export_text_encoder(embedding, text, file)
            return compare_text_encoder(embedding, text, file, seed)
        export_encoder(embedding, branch, file, localizer)
        return compare_encoder(embedding, branch, file, seed, localizer)

    with ThreadPoolExecutor(PROCESSES) as threads:
        exports = [threads.submit(export, branch) for branch in branches(load_model(embedding))]
        for done in track(exports, "export and compare"):
            yield from done.result()


def _export_vectorizer(text: Path, folder: Path, seed: int) -> Iterator[Parity]:
    """Copy the vocabulary of token ids, export ELMo, or copy another fitted vectorizer without its
    network."""
    name = TextStore(text).format.name
    if name == "tokens":
        shutil.copy(text / Vocabulary.FILE, folder / Vocabulary.FILE)
    elif name == "contextual" and not has_network(text):
        export_elmo(text, folder / ELMO)
        yield from compare_elmo(text, folder / ELMO, seed)
    else:
        shutil.copytree(text, folder / "text", ignore=_unused_files)


def _unused_files(folder: str, names: Sequence[str]) -> set[str]:
    """Return the files of a text that serving does not need: captions, and networks that are in a
    graph."""
    return {CAPTIONS, "manifest.json", NETWORK, *([TOWER] if TOKENIZER in names else [])} & set(
        names
    )
