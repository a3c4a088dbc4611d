"""Processes that ``torchrun`` starts for one stage: the main process writes, tracks and reports."""

import os


def under_torchrun() -> bool:
    """Whether ``torchrun`` started this process."""
    return "RANK" in os.environ


def is_main_process() -> bool:
    """Whether this process is the only one or the first of several."""
    return os.environ.get("RANK", "0") == "0"
