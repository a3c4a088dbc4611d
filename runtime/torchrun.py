"""Processes that ``torchrun`` starts for one stage: the main process writes, tracks and reports."""

import os


def under_torchrun() -> bool:
    """Whether ``torchrun`` started this process."""
    return "RANK" in os.environ


def is_main_process() -> bool:
    """Whether this process is the only one or the first of several."""
    return os.environ.get("RANK", "0") == "0"


def processes_of_one_machine(count: int) -> list[str]:
    """Return the arguments of Python that start a module in ``count`` processes, before ``-m module``."""
    return [] if count == 1 else ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={count}"]
