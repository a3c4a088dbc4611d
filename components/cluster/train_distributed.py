"""Step train_distributed: run."""

import os
import shutil
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from kubeflow.trainer import TrainerClient

from bifocal.durable import json_digest
from components.train_embedding.spec import COMPONENT as TRAIN_EMBEDDING
from runtime.artifacts import MANIFEST, artifact_hash
from runtime.identity import image_key
from runtime.kubeflow.node import CHECKPOINTS, MODEL, SETTINGS, NodeSettings
from runtime.kubeflow.train_job import TrainJob, create_train_job
from runtime.s3.storage import Storage

if TYPE_CHECKING:
    from components.cluster.steps import TrainDistributedParams


def run(
    params: "TrainDistributedParams", *, embedding: Path, client: Any | None = None, **inputs: Path
) -> dict[str, float]:
    """Upload the inputs to S3, train on ``params.nodes`` machines, and download the model to
    ``embedding``.

    Inputs, parameters, code and image give the name of the job and its folder on S3, so a step that
    is killed and started again adopts its job, or takes its model. Without a ``client``, the step
    connects to its own cluster.
    """
    settings = NodeSettings.model_validate_json(os.environ[SETTINGS])
    storage = Storage()
    code = image_key(TRAIN_EMBEDDING)
    hashes = {name: artifact_hash(path) for name, path in inputs.items()}
    identity = json_digest([hashes, params.model_dump(mode="json"), code])[:16]
    folder = f"{settings.folder}/{identity}"
    if not storage.exists(f"{folder}/{MODEL}/{MANIFEST}"):
        for name, path in inputs.items():
            storage.upload(path, f"{folder}/{name}")
        job = {
            "folder": folder,
            "inputs": list(inputs),
            "values": {"seed": params.seed, "train_embedding": params.values},
            "code": code,
            "processes": settings.processes,
            "secrets": settings.secrets,
        }
        client, name = client or TrainerClient(), f"bifocal-{identity}"
        create = partial(create_train_job, client, name, params.image, params.nodes, settings, job)
        TrainJob(client, name, create, settings.timeout, settings.queue_timeout).run()
    with TemporaryDirectory() as temporary:
        model = Path(temporary) / MODEL
        storage.download(f"{folder}/{MODEL}", model)
        (model / MANIFEST).unlink()  # this step writes a manifest of its own
        shutil.copytree(model, embedding, dirs_exist_ok=True)
    # The model stays: Kubeflow may lose this step's output, and then starts it again.
    for name in [*inputs, CHECKPOINTS]:
        storage.delete(f"{folder}/{name}")
    return {"nodes": params.nodes}
