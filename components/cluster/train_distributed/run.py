"""How train_job works: inputs to S3, a TrainJob that trains from there, and the model back."""

import json
import shutil
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from kubeflow.trainer import CustomTrainerContainer, TrainerClient
from kubeflow.trainer import options as patches

from components.catalog import all_components
from components.cluster.train_distributed.node import JOB, SECRETS
from components.cluster.train_distributed.spec import TrainJobParams
from runtime.artifacts import MANIFEST, artifact_hash, code_hash
from runtime.s3.storage import Storage

ROOT = Path(__file__).parents[3]
POLL_SECONDS = 15
LINES = 20


def run(
    params: TrainJobParams,
    *,
    dataset: Path,
    features: Path,
    text: Path,
    sorter: Path,
    embedding: Path,
    client: Any | None = None,
) -> dict[str, float]:
    """Train on ``params.nodes`` machines and bring the model here.

    What the same inputs and parameters left in ``params.folder`` is used again: a killed job goes on from nothing, but
    sends nothing twice.

    Args:
        client: of Kubeflow's Trainer; the one of this cluster, unless given.

    Raises:
        ValueError: the job failed; with its last words.
        TimeoutError: it did not end in ``params.timeout`` seconds.
    """
    inputs = {"dataset": dataset, "features": features, "text": text, "sorter": sorter}
    hashes = {name: artifact_hash(path) for name, path in inputs.items()}
    identity = json.dumps([hashes, params.seed, params.values], sort_keys=True)
    folder = f"{params.folder}/{sha256(identity.encode()).hexdigest()[:16]}"
    for name, path in inputs.items():
        Storage().upload(path, f"{folder}/{name}")
    client = client or TrainerClient()
    job = submit(params, folder, [*inputs], client)
    try:
        ended = client.wait_for_job_status(
            job, {"Complete", "Failed"}, timeout=params.timeout, polling_interval=min(POLL_SECONDS, params.timeout - 1)
        )
        if ended.status == "Failed":
            said = "\n".join([*client.get_job_logs(job)][-LINES:])
            raise ValueError(f"the TrainJob {job} of {params.nodes} nodes failed; node 0 said at last:\n{said}")
    finally:
        client.delete_job(job)
    with TemporaryDirectory() as aside:
        made = Path(aside) / "embedding"
        Storage().download(f"{folder}/embedding", made)
        (made / MANIFEST).unlink()
        shutil.copytree(made, embedding, dirs_exist_ok=True)
    return {"nodes": params.nodes}


def submit(params: TrainJobParams, folder: str, inputs: list[str], client: Any) -> str:
    """Create the TrainJob whose every node runs ``components.cluster.train_distributed.node``; returns its name."""
    task = {
        "folder": folder,
        "inputs": inputs,
        "values": {"seed": params.seed, "train_embedding": params.values},
        "code": code_hash(ROOT, all_components()["train_embedding"].all_code_paths),
        "secrets": params.secrets,
    }
    trainer = CustomTrainerContainer(
        image=params.image,
        num_nodes=params.nodes,
        resources_per_node=params.per_node,
        env={**params.environment, JOB: json.dumps(task, sort_keys=True)},
    )
    # As files: the Trainer takes no variables from secrets.
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
    runtime = patches.TrainingRuntimeSpecPatch(template=patches.JobSetTemplatePatch(spec=jobs))
    name: str = client.train(
        runtime=params.runtime,
        trainer=trainer,
        options=[
            patches.TrainerCommand(["python", "-m", "components.cluster.train_distributed.node"]),
            patches.RuntimePatch(training_runtime_spec=runtime),
            patches.ActiveDeadlineSeconds(params.timeout),
        ],
    )
    return name
