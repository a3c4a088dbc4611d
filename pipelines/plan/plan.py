"""Contents of a plan."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from bifocal.datasets.published import Download
from pipelines.plan.devices import Limits

GB = 1_000_000_000
CUDA_CONTEXT = 600_000_000
FRAGMENTATION = 1.05
"""Memory that the allocator of a GPU reserves, relative to that of the tensors."""


@dataclass(frozen=True)
class StagePlan:
    """Prediction of one stage.

    Attributes:
        name: of the stage.
        artifacts: bytes of each artifact.
        host: peak bytes of host memory.
        gpu: peak bytes of GPU memory; 0 without a network, None if it is unknown.
        steps: training steps.
        seconds: duration on the device; None if it is unknown.
    """

    name: str
    artifacts: dict[str, int] = field(default_factory=dict)
    host: int = 0
    gpu: int | None = 0
    steps: int = 0
    seconds: float | None = 0.0


@dataclass(frozen=True)
class PlannedDownload:
    """A file to fetch, and the place that the parameters name for it."""

    file: Download
    place: str


@dataclass(frozen=True)
class Plan:
    """Prediction of a pipeline.

    Attributes:
        device: name of the device.
        downloads: files to fetch.
        stages: in the order of the pipeline.
        notes: quantities that cannot be predicted, with the reason.
    """

    device: str
    downloads: tuple[PlannedDownload, ...]
    stages: tuple[StagePlan, ...]
    notes: tuple[str, ...] = ()

    @property
    def download_bytes(self) -> int:
        """Bytes of the downloads whose size is published."""
        return sum(download.file.size or 0 for download in self.downloads)

    @property
    def artifact_bytes(self) -> int:
        """Bytes of all artifacts."""
        return sum(sum(stage.artifacts.values()) for stage in self.stages)

    @property
    def hours(self) -> float:
        """Hours of all stages whose duration is known."""
        return sum(stage.seconds or 0.0 for stage in self.stages) / 3600

    def exceeded(self, limits: Limits) -> Iterator[str]:
        """Explain what a machine lacks.

        Example:
            >>> plan = Plan("", (), (StagePlan("train_embedding", host=80 * GB),))
            >>> list(plan.exceeded(Limits("a laptop", host=64 * GB, gpu=0, disk=GB)))
            ['train_embedding: 80.0 GB of host memory, a laptop has 64.0 GB']
        """
        for stage in self.stages:
            if stage.host > limits.host:
                yield f"{stage.name}: {gb(stage.host)} of host memory, {limits.name} has {gb(limits.host)}"
            if limits.gpu and stage.gpu is not None and stage.gpu > limits.gpu:
                yield f"{stage.name}: {gb(stage.gpu)} of GPU memory, {limits.name} has {gb(limits.gpu)}"
        needed = self.artifact_bytes + 2 * self.download_bytes  # archives, and their contents
        if needed > limits.disk:
            yield f"downloads and artifacts: {gb(needed)} of disk, {limits.name} has {gb(limits.disk)} free"


def gb(size: float) -> str:
    """Return a size in GB, or in MB below 100 MB.

    Example:
        >>> gb(1.25e9), gb(3e6)
        ('1.2 GB', '3 MB')
    """
    return f"{size / GB:.1f} GB" if size >= GB / 10 else f"{size / 1e6:.0f} MB"


def gpu_peak(tensors: int | None) -> int | None:
    """Return the GPU memory of a process whose tensors need ``tensors`` bytes at once; None if they are unknown."""
    return None if tensors is None else round(CUDA_CONTEXT + FRAGMENTATION * tensors)
