"""The collection of a run: all images of its dataset, embedded by its model."""

from hashlib import sha256
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from bifocal.batch import to_device
from bifocal.datasets import read_dataset
from bifocal.embedding import dual_encoder
from bifocal.features import FeatureStore
from bifocal.hubness.bank import FILE, HubnessBank
from bifocal.models import load_model
from bifocal.progress import track
from bifocal.search.run_collection import RunCollection
from pipelines.app.run_folder import ARTIFACTS, COLLECTION
from runtime.artifacts import artifact_hash

BATCH = 256


def write_collection(folder: Path) -> int:
    """Embed the images of a run, unless its collection is up to date; return their number.

    Raises:
        TypeError: the model has no single vector for an image.
    """
    artifacts, target = folder / ARTIFACTS, folder / COLLECTION
    digest, bank = artifact_hash(artifacts / "onnx"), HubnessBank.read(artifacts / "embedding")
    if bank is not None:  # the biases depend on it
        digest += f"-{sha256((artifacts / 'embedding' / FILE).read_bytes()).hexdigest()}"
    dataset = read_dataset(artifacts / "dataset")
    if (target / "collection.json").is_file():
        former = RunCollection.read(target)
        if former.model == digest and former.images["image_id"].tolist() == dataset.images["image_id"].tolist():
            return len(former)
    model, store = load_model(artifacts / "embedding"), FeatureStore(artifacts / "features")
    encoder = dual_encoder(model, instead="search with GroundingSearch")
    ids = dataset.images["image_id"].tolist()
    vectors = []
    with torch.inference_mode():
        for start in track(range(0, len(ids), BATCH), "embedding images"):
            regions = to_device(store.gather(store.rows(ids[start : start + BATCH])), model.device)
            vectors.append(encoder.embed_images(regions).float().cpu().numpy())
    captions = dataset.captions.groupby("image_id")["text"].agg(list)
    has_file = dataset.images["path"].notna()
    paths = [
        str(dataset.image_path(image_id)) if known else None for image_id, known in zip(ids, has_file, strict=True)
    ]
    images = pd.DataFrame(
        {"image_id": ids, "path": paths, "captions": [list(captions.get(image_id, [])) for image_id in ids]}
    )
    embedded = np.concatenate(vectors)
    bias = None if bank is None else bank.image_bias(embedded)
    RunCollection(embedded.astype(np.float16), images, digest, bias).write(target)
    return len(ids)
