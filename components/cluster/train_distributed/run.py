"""Step train_distributed: run."""

import json
import shutil
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from kubeflow.trainer import CustomTrainerContainer, TrainerClient
from kubeflow.trainer import options as patches

from components.catalog import all_components
from components.cluster.train_distributed.node import JOB, SECRETS
from components.cluster.train_distributed.spec import TrainDistributedParams
from runtime.artifacts import MANIFEST, artifact_hash
from runtime.identity import image_key
from runtime.s3.storage import Storage

ROOT = Path(__file__).parents[3]
POLL_SECONDS = 15
LOG_LINES = 20


def run(
    params: TrainDistributedParams, *, embedding: Path, client: Any | None = None, **inputs: Path
) -> dict[str, float]:
    """Upload the inputs to S3, train on ``params.nodes`` machines, and download the model to ``embedding``.

    The folder of the job on S3 is identified by inputs and parameters. A killed job is restarted, but its inputs are
    not uploaded again.

    Args:
        client: of Kubeflow's Trainer; None connects to the cluster that this step runs on.
        inputs: artifacts that ``train_embedding`` reads.

    Raises:
        ValueError: the job failed; the message has the end of its log.
        TimeoutError: the job did not end within ``params.timeout`` seconds.
    """
    hashes = {name: artifact_hash(path) for name, path in inputs.items()}
    identity = json.dumps([hashes, params.seed, params.values], sort_keys=True)
    folder = f"{params.folder}/{sha256(identity.encode()).hexdigest()[:16]}"
    for name, path in inputs.items():
        Storage().upload(path, f"{folder}/{name}")
    client = client or TrainerClient()
    job = submit(params, folder, inputs, client)
    try:
        final = client.wait_for_job_status(
            job, {"Complete", "Failed"}, timeout=params.timeout, polling_interval=min(POLL_SECONDS, params.timeout - 1)
        )
        if final.status == "Failed":
            log = "\n".join([*client.get_job_logs(job)][-LOG_LINES:])
            raise ValueError(f"the TrainJob {job} of {params.nodes} nodes failed; end of the log of node 0:\n{log}")
    finally:
        client.delete_job(job)
    with TemporaryDirectory() as temporary:
        model = Path(temporary) / "embedding"
        Storage().download(f"{folder}/embedding", model)
        (model / MANIFEST).unlink()  # this step writes a manifest of its own
        shutil.copytree(model, embedding, dirs_exist_ok=True)
    return {"nodes": params.nodes}


def submit(params: TrainDistributedParams, folder: str, inputs: Iterable[str], client: Any) -> str:
    """Create the TrainJob and return its name; each node runs ``components.cluster.train_distributed.node``."""
    job = {
        "folder": folder,
        "inputs": list(inputs),
        "values": {"seed": params.seed, "train_embedding": params.values},
        "code": image_key(all_components()["train_embedding"]),
        "secrets": params.secrets,
    }
    trainer = CustomTrainerContainer(
        image=params.image,
        num_nodes=params.nodes,
        resources_per_node=params.per_node,
        env={**params.environment, JOB: json.dumps(job, sort_keys=True)},
    )
    name: str = client.train(
        runtime=params.runtime,
        trainer=trainer,
        options=[
            patches.TrainerCommand(["python", "-m", "components.cluster.train_distributed.node"]),
            patches.RuntimePatch(training_runtime_spec=_runtime_patch(params)),
            patches.ActiveDeadlineSeconds(params.timeout),
        ],
    )
    return name


def _runtime_patch(params: TrainDistributedParams) -> patches.TrainingRuntimeSpecPatch:
    # Secrets are mounted as files: the Trainer cannot set environment variables from secrets.
    node = patches.ContainerPatch(
        name="node",
        volume_mounts=[{"name": name, "mountPath": f"{SECRETS}/{name}", "readOnly": True} for name in params.secrets],
    )
    pod = patches.PodSpecPatch(
        containers=[node],
        volumes=[{"name": name, "secret": {"secretName": name, "optional": True}} for name in params.secrets],
        node_selector=params.node_selector,
        tolerations=params.tolerations,
    )
    template = patches.JobTemplatePatch(spec=patches.JobSpecPatch(template=patches.PodTemplatePatch(spec=pod)))
    jobs = patches.JobSetSpecPatch(replicated_jobs=[patches.ReplicatedJobPatch(name="node", template=template)])
    return patches.TrainingRuntimeSpecPatch(template=patches.JobSetTemplatePatch(spec=jobs))
