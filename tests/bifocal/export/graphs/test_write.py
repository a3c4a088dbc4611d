"""Fresh processes of exports."""

import gc
from pathlib import Path

from torch.onnx._internal._lazy_import import onnxscript_apis

from bifocal.export.graphs.write import run_in_fresh_process


def write_counts(file: Path) -> None:
    operators = onnxscript_apis.get_torchlib_ops()
    once = operators is onnxscript_apis.get_torchlib_ops()
    file.write_text(f"{gc.get_freeze_count()} {len(gc.get_objects())} {len(operators)} {once:d}")


def test_objects_of_packages_are_frozen_and_operators_are_read_once(tmp_path: Path) -> None:
    run_in_fresh_process(write_counts, tmp_path / "counts")
    frozen, others, operators, once = map(int, (tmp_path / "counts").read_text().split())
    assert frozen > 100_000
    assert others < frozen / 10
    assert operators > 400
    assert once
