"""Devices that a plan is made for, and this machine."""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from bifocal.planning.simulation import Work

CORES = os.cpu_count() or 1

UTILIZATION = 0.5
"""Share of the peak arithmetic that matrix products and convolutions reach."""
READS_AND_WRITES = 2.5
"""Bytes that an operation reads and writes per byte of its result."""
LAUNCH_SECONDS = 5e-6
"""Duration of the launch of an operation."""
DISK_BYTES_PER_SECOND = 1e9
IMAGES_PER_CORE_AND_SECOND = 120
"""JPEG files of 640 x 480 that a core decodes and resizes."""


@dataclass(frozen=True)
class Device:
    """A machine to plan for.

    Attributes:
        name: for tables.
        gpu_bytes: memory of the GPU; 0 without one.
        bfloat16, float32: peak operations per second of matrix products.
        bandwidth: bytes per second between memory and cores.
        cores: processor cores, which decode images.
    """

    name: str
    gpu_bytes: int
    bfloat16: float
    float32: float
    bandwidth: float
    cores: int = 16

    def seconds(self, work: Work, precision: str) -> float:
        """Return the seconds of arithmetic, of reading and writing tensors, and of launching kernels.

        Example:
            >>> round(DEVICES["h100"].seconds(Work(flops=989e12), "bfloat16"), 2)
            2.0
        """
        peak = self.bfloat16 if precision == "bfloat16" else self.float32
        moved = READS_AND_WRITES * work.written
        return work.flops / (UTILIZATION * peak) + moved / self.bandwidth + LAUNCH_SECONDS * work.calls


def processor(cores: int) -> Device:
    """Return ``cores`` processor cores without a GPU."""
    return Device("this processor", 0, 60e9 * cores, 120e9 * cores, 20e9, cores)


DEVICES = {
    "h100": Device("H100 (80 GB)", 80_000_000_000, 989e12, 67e12, 3.35e12),
    "a100": Device("A100 (40 GB)", 40_000_000_000, 312e12, 19.5e12, 1.55e12),
    "rtx4090": Device("RTX 4090 (24 GB)", 24_000_000_000, 165e12, 82.6e12, 1.01e12),
    "cpu": processor(CORES),
}
"""Peaks are those of the data sheets for dense products with accumulation in float32; those of "cpu" are a guess of 120
billion operations per second and core, half of it in bfloat16, and of 20 GB/s."""


@dataclass(frozen=True)
class Limits:
    """Resources that a plan is compared with, in bytes; a GPU of 0 bytes is not compared."""

    name: str
    host: int
    gpu: int
    disk: int


def this_machine(folder: Path) -> Limits:
    """Return the memory of this machine, its first GPU, and the free space of the file system of ``folder``."""
    from torch import cuda

    gpu = cuda.get_device_properties(0).total_memory if cuda.is_available() else 0
    host = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return Limits("this machine", host, gpu, shutil.disk_usage(folder).free)
