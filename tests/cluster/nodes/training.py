"""The step ``train_distributed`` with the pods, the permissions and the secrets of a cluster."""

import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubeflow.trainer import KubernetesBackendConfig, TrainerClient

from components.cluster.steps import TrainDistributedParams
from components.cluster.train_distributed import run as train
from pipelines.kubeflow.resources import load
from pipelines.kubeflow.tasks import node_settings
from runtime.kubeflow.node import SETTINGS
from tests.cluster.nodes.image import ROOT, STEPS
from tests.cluster.nodes.kubectl import Namespace, kubectl
from tests.cluster.nodes.start import configuration
from tests.rehearsals.train_distributed import VALUES

TRAINER, ACCOUNT = "deploy/base/pipelines/trainer.yaml", "bifocal"
ENVIRONMENT = (
    *("MLFLOW_TRACKING_URI", "BIFOCAL_S3_PATH_STYLE", "BIFOCAL_CHECKPOINT_MINUTES"),
    *("OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES"),
)
SMALL = {"nodes": 2, "gpu": None, "cpu": "900m", "memory": "2Gi", "shared_memory": None}


class Step:
    """The step in a namespace, whose service account it has."""

    def __init__(self, namespace: Namespace, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.namespace, self.folder, self.monkeypatch = namespace, folder, monkeypatch
        self._permit()

    def __call__(self, inputs: dict[str, Path], seed: int = 0, **step: Any) -> Path:
        """Train with the resources ``step`` for a machine; return the model."""
        overlay = self.folder / "resources.yaml"
        overlay.write_text(yaml.safe_dump({"steps": {"train_embedding": SMALL | step}}))
        resources = load(images={"cpu": STEPS, "gpu": STEPS}, overlays=[overlay])
        own = resources.for_step("train_embedding")
        settings = node_settings(own, resources, ENVIRONMENT)
        folder = f"s3://bifocal/{self.namespace.name}"
        settings = settings.model_copy(update={"folder": folder})
        self.monkeypatch.setenv(SETTINGS, settings.model_dump_json())
        params = TrainDistributedParams(seed=seed, values=VALUES, nodes=own.nodes, image=STEPS)
        model = self.folder / "embedding"
        model.mkdir()
        train(params, embedding=model, client=self.client(), **inputs)
        return model

    def client(self) -> TrainerClient:
        """Return the client of the step in its pod."""
        token = self.namespace.kubectl("create", "token", ACCOUNT, "--duration=2h").strip()
        return TrainerClient(
            KubernetesBackendConfig(
                namespace=self.namespace.name, client_configuration=configuration(token)
            )
        )

    def _permit(self) -> None:
        """Give the service account the roles of ``deploy/``, and the secrets of S3."""
        documents = list(yaml.safe_load_all((ROOT / TRAINER).read_text()))
        for document in documents:
            if document["kind"].startswith("Cluster"):
                document["metadata"]["name"] += f"-{self.namespace.name}"
            else:
                document["metadata"]["namespace"] = self.namespace.name
            if document["kind"] == "ClusterRoleBinding":
                document["roleRef"]["name"] += f"-{self.namespace.name}"
                document["subjects"][0]["namespace"] = self.namespace.name
        self.namespace.kubectl("create", "serviceaccount", ACCOUNT)
        kubectl("apply", documents=documents)
        self.namespace.kubectl(
            "create",
            "secret",
            "generic",
            "bifocal-s3",
            *(
                f"--from-literal={key}={os.environ[variable]}"
                for key, variable in load().secrets["bifocal-s3"].items()
            ),
        )
