"""Workspace: the folder of a pipeline's artifacts, local or on S3."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from runtime.s3.storage import Storage
from runtime.s3.uri import cache_path, is_remote
from runtime.torchrun import under_torchrun


@dataclass(frozen=True)
class Workspace:
    """Folder of the artifacts; one on S3 has local copies of the artifacts that a stage reads or writes."""

    address: str

    def __post_init__(self) -> None:
        if is_remote(self.address) and under_torchrun():
            raise ValueError(f"--artifacts {self.address}: torchrun needs a local folder that all its processes see")

    def path(self, artifact: str) -> Path:
        """Local path of an artifact."""
        folder = cache_path(self.address) if is_remote(self.address) else Path(self.address)
        return folder / artifact

    def download(self, artifacts: Iterable[str]) -> None:
        """Make the local copies equal to the artifacts on S3; do nothing for a local folder."""
        if is_remote(self.address):
            for artifact in artifacts:
                Storage().download(f"{self.address}/{artifact}", self.path(artifact))

    def upload(self, artifacts: Iterable[str]) -> None:
        """Upload the local copies to S3; do nothing for a local folder."""
        if is_remote(self.address):
            for artifact in artifacts:
                Storage().upload(self.path(artifact), f"{self.address}/{artifact}")
