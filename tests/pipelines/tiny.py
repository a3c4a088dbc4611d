"""The default pipeline, made small."""

from pathlib import Path
from typing import Any

from runtime import parameters

ROOT = Path(__file__).parents[2]


def tiny_values() -> dict[str, Any]:
    """``params.yaml`` under ``tests/small.yaml``."""
    return parameters.load(ROOT / "params.yaml", [ROOT / "tests" / "small.yaml"])
