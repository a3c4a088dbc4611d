"""Step train_distributed: run."""

import json
import os
import shutil
from collections.abc import Sequence
from functools import partial
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from kubeflow.trainer import CustomTrainerContainer, TrainerClient
from kubeflow.trainer import options as patches
from kubeflow.trainer.options.common import Name

from components.catalog import all_components
from components.cluster.train_distributed.job import TrainJob
from components.cluster.train_distributed.node import CHECKPOINTS, JOB, MODEL
from components.cluster.train_distributed.pods import runtime_patch
from components.cluster.train_distributed.spec import SETTINGS, NodeSettings, TrainDistributedParams
from runtime.artifacts import MANIFEST, artifact_hash
from runtime.identity import image_key
from runtime.s3.storage import Storage


def run(
    params: TrainDistributedParams, *, embedding: Path, client: Any | None = None, **inputs: Path
) -> dict[str, float]:
    """Upload the inputs to S3, train on ``params.nodes`` machines, and download the model to ``embedding``.

    Inputs, parameters, code and image give the name of the job and its folder on S3. So a step that is killed, and
    started again, adopts its job, or takes the model if the job is done. The job resumes from its checkpoints.

    Args:
        client: of Kubeflow's Trainer; None connects to the cluster that this step runs on.
        inputs: artifacts that ``train_embedding`` reads.

    Raises:
        ValueError: the job failed; the message has the end of its log.
        TimeoutError: the job did not end in time.
        OSError: S3, or the Kubernetes API for an hour, did not answer.
    """
    settings = NodeSettings.model_validate_json(os.environ[SETTINGS])
    storage = Storage()
    code = image_key(all_components()["train_embedding"])
    hashes = {name: artifact_hash(path) for name, path in inputs.items()}
    text = json.dumps([hashes, params.model_dump(mode="json"), code], sort_keys=True)
    identity = sha256(text.encode()).hexdigest()[:16]
    folder = f"{settings.folder}/{identity}"
    if not storage.exists(f"{folder}/{MODEL}/{MANIFEST}"):
        for name, path in inputs.items():
            storage.upload(path, f"{folder}/{name}")
        client, name = client or TrainerClient(), f"bifocal-{identity}"
        create_job = partial(create, client, name, params, settings, folder, code, list(inputs))
        TrainJob(client, name, create_job, settings.timeout).run()
    with TemporaryDirectory() as temporary:
        model = Path(temporary) / MODEL
        storage.download(f"{folder}/{MODEL}", model)
        (model / MANIFEST).unlink()  # this step writes a manifest of its own
        shutil.copytree(model, embedding, dirs_exist_ok=True)
    # The model stays: Kubeflow may lose this step's output, and then starts it again.
    for name in [*inputs, CHECKPOINTS]:
        storage.delete(f"{folder}/{name}")
    return {"nodes": params.nodes}


def create(
    client: Any,
    name: str,
    params: TrainDistributedParams,
    settings: NodeSettings,
    folder: str,
    code: str,
    inputs: Sequence[str],
) -> None:
    """Create the TrainJob; each node runs ``components.cluster.train_distributed.node``.

    Args:
        folder: of the job on S3.
        code: hash of the code of ``train_embedding``.
        inputs: names of the artifacts in ``folder``.
    """
    job = {
        "folder": folder,
        "inputs": inputs,
        "values": {"seed": params.seed, "train_embedding": params.values},
        "code": code,
        "processes": settings.processes,
        "secrets": settings.secrets,
    }
    environment = {name: os.environ[name] for name in settings.environment if name in os.environ}
    trainer = CustomTrainerContainer(
        image=params.image,
        num_nodes=params.nodes,
        resources_per_node=settings.resources,
        env={**environment, JOB: json.dumps(job, sort_keys=True)},
    )
    client.train(
        runtime=settings.runtime,
        trainer=trainer,
        options=[
            Name(name),
            patches.Labels(settings.labels),
            patches.Annotations(settings.annotations),
            patches.TrainerCommand(["python", "-m", "components.cluster.train_distributed.node"]),
            runtime_patch(settings),
            patches.ActiveDeadlineSeconds(settings.timeout),
        ],
    )
