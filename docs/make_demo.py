"""Train the model of ``bifocal demo`` and write the files that travel with the package.

    make demo-model

The data are the drawn scenes of ``Scenes``; the parameters are in
``pipelines/app/demo_model/recipe.yaml``. The same machine and packages give the same files. A run
that exists in ``runs/demo-model`` goes on where it was.
"""

import json
import shutil
from hashlib import sha256
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

from bifocal.datasets import read_dataset
from bifocal.hubness.bank import HubnessBank
from bifocal.onnx.encoders import Embedder
from bifocal.onnx.images import open_image
from bifocal.search.trained_model import encode_file
from pipelines.app.demo import (
    BACKBONE,
    BIAS,
    COLUMNS,
    GRAPHS,
    RECIPE,
    SHEET,
    SHIPPED,
    SIDE,
    TABLE,
    VECTORS,
    tiles,
)
from pipelines.app.run_folder import ARTIFACTS, shipped_file, use_store_of
from pipelines.app.stages import run_stages, stages_of_run
from runtime import parameters

RUN = Path("runs/demo-model")
SKIPPED = ("manifest.json", "parity.csv")
SHEET_QUALITY, BATCH = 70, 64


def main() -> None:
    """Train, and write the shipped files."""
    values = parameters.load(shipped_file("params.yaml"), [SHIPPED / RECIPE])
    use_store_of(RUN)
    run_stages(RUN, values, stages_of_run())
    artifacts = RUN / ARTIFACTS
    shutil.rmtree(SHIPPED / GRAPHS, ignore_errors=True)
    shutil.copytree(artifacts / "onnx", SHIPPED / GRAPHS, ignore=shutil.ignore_patterns(*SKIPPED))
    weights = load_file(artifacts / "features" / "weights.safetensors")
    save_file(
        {
            name: tensor.half() if tensor.is_floating_point() else tensor
            for name, tensor in weights.items()
        },
        SHIPPED / BACKBONE,
    )
    (SHIPPED / BACKBONE).chmod(0o644)  # safetensors lets only the owner read it
    write_collection(artifacts)


def write_collection(artifacts: Path) -> None:
    """Write the images of the test split as one sheet, their captions, their vectors and the biases
    of the vectors."""
    split = read_dataset(artifacts / "dataset").split("test")
    ids = split.images["image_id"].tolist()
    sheet = Image.new("RGB", (COLUMNS * SIDE, -(-len(ids) // COLUMNS) * SIDE))
    for number, image_id in enumerate(ids):
        sheet.paste(
            open_image(split.image_path(image_id)),
            (number % COLUMNS * SIDE, number // COLUMNS * SIDE),
        )
    sheet.save(SHIPPED / SHEET, "WEBP", quality=SHEET_QUALITY, method=6)
    embedder, encoded = (
        Embedder(SHIPPED / GRAPHS),
        [encode_file(image) for image in tiles(SHIPPED / SHEET, len(ids))],
    )
    parts = [
        embedder.embed_images(encoded[start : start + BATCH]) for start in range(0, len(ids), BATCH)
    ]
    vectors = np.concatenate(parts).astype(np.float16)
    np.save(SHIPPED / VECTORS, vectors)
    bank = HubnessBank.read(artifacts / "embedding")
    (SHIPPED / BIAS).unlink(missing_ok=True)
    if bank is not None:
        np.save(SHIPPED / BIAS, bank.image_bias(vectors))
    texts = split.captions.groupby("image_id")["text"].agg(list)
    files = [*sorted((SHIPPED / GRAPHS).iterdir()), *SHIPPED.glob(BIAS)]
    digest = sha256(b"".join(path.read_bytes() for path in files)).hexdigest()
    content = {"model": digest, "captions": [texts[image_id][:2] for image_id in ids]}
    (SHIPPED / TABLE).write_text(json.dumps(content, indent=0) + "\n")


if __name__ == "__main__":
    torch.set_num_threads(1)  # sums in a fixed order
    main()
