"""OpenLineage events of each stage, with the extra ``lineage``; without its variables, nothing is
imported."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

from bifocal.progress import log_line
from bifocal.version import __version__
from runtime.artifacts import artifact_hash
from runtime.redaction import redact
from runtime.s3.uri import SCHEME, is_remote, parse_s3_uri

SETTINGS = ("OPENLINEAGE_URL", "OPENLINEAGE_CONFIG", "OPENLINEAGE__")
NAMESPACE = "OPENLINEAGE_NAMESPACE"
CLOSE_SECONDS = 10.0
"""Time for a transport that sends later."""


@contextmanager
def lineage_run(
    stage: str, inputs: Mapping[str, str], outputs: Mapping[str, Path]
) -> Iterator[None]:
    """Send the start and the end of a stage; ``inputs`` has the hash of each artifact and of each
    address on S3."""
    if not any(name.startswith(SETTINGS) for name in os.environ):
        yield
        return
    events = _Events(stage, inputs)
    events.send("START")
    try:
        yield
    except BaseException as error:
        events.send("FAIL", error=redact(str(error)) or type(error).__name__)
        raise
    events.send("COMPLETE", {name: artifact_hash(path) for name, path in outputs.items()})


class _Events:
    """Events of one run of a stage."""

    def __init__(self, stage: str, inputs: Mapping[str, str]) -> None:
        try:
            from openlineage.client import OpenLineageClient, event_v2, facet_v2
        except ImportError as error:
            raise ValueError(
                f"{', '.join(SETTINGS[:2])}: events need a package, pip install "
                "'bifocal-vse[lineage]'"
            ) from error
        self._client, self._event, self._facet = OpenLineageClient(), event_v2, facet_v2
        self._stage, self._inputs = stage, inputs
        self._run_id, self._namespace = str(uuid4()), os.environ.get(NAMESPACE, "bifocal")

    def send(self, state: str, outputs: Mapping[str, str] | None = None, error: str = "") -> None:
        """Send an event; a receiver that is away does not end the stage."""
        event, inputs = (
            self._event,
            [self._dataset("InputDataset", *entry) for entry in self._inputs.items()],
        )
        written = [self._dataset("OutputDataset", *entry) for entry in (outputs or {}).items()]
        try:
            self._client.emit(
                event.RunEvent(
                    eventType=event.RunState[state],
                    eventTime=datetime.now(UTC).isoformat(),
                    run=event.Run(self._run_id, self._run_facets(error)),
                    job=event.Job(self._namespace, self._stage),
                    producer=f"urn:bifocal:{__version__}",
                    inputs=inputs,
                    outputs=written,
                )
            )
            if state != "START":
                self._client.close(CLOSE_SECONDS)
        except Exception as problem:  # each transport has errors of its own
            log_line(
                f"warning: the OpenLineage event {state} of {self._stage} was not sent: "
                f"{redact(str(problem))}"
            )

    def _dataset(self, kind: str, name: str, digest: str) -> Any:
        """Return an artifact, or a folder on S3 by OpenLineage's naming of datasets, with its hash
        as the version."""
        namespace = self._namespace
        if is_remote(name):
            bucket, name = parse_s3_uri(name)
            namespace = f"{SCHEME}{bucket}"
        version = self._facet.dataset_version_dataset.DatasetVersionDatasetFacet(
            datasetVersion=digest
        )
        return getattr(self._event, kind)(
            namespace=namespace, name=name, facets={"version": version}
        )

    def _run_facets(self, error: str) -> dict[str, Any]:
        """Return the error of the run, and the run of Kubeflow that it belongs to."""
        facets, parent = dict[str, Any](), self._facet.parent_run
        if error:
            facets["errorMessage"] = self._facet.error_message_run.ErrorMessageRunFacet(
                error, "python"
            )
        if run_id := os.environ.get("KFP_RUN_ID"):
            run = parent.Run(str(UUID(run_id)))
            facets["parent"] = parent.ParentRunFacet(run, parent.Job(self._namespace, "pipeline"))
        return facets
