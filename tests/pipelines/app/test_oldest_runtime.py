"""Exported graphs in the oldest ONNX Runtime that reads them: the same vectors as in this one."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bifocal.backbones.networks import small_networks
from bifocal.export.class_sentences import small_encoders
from bifocal.onnx.sessions import open_session
from bifocal.search.trained_model import ONNX

VERSION = "1.17"
TYPES = {
    "tensor(float)": np.float32,
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
    "tensor(uint8)": np.uint8,
    "tensor(bool)": np.bool_,
}
PROGRAM = """
import sys
from pathlib import Path
import numpy, onnxruntime
print(onnxruntime.__version__)
for file in map(Path, sys.argv[1:]):
    inputs = dict(numpy.load(file.with_suffix(".npz")))
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.disable_quant_qdq", "1")
    session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_outputs()]
    numpy.savez(file.with_suffix(".out.npz"), **dict(zip(names, session.run(names, inputs))))
"""


@pytest.fixture(scope="module")
def oldest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Python of an environment with the oldest runtime; without a package index, the test is
    skipped."""
    folder, uv = tmp_path_factory.mktemp("oldest") / "venv", Path(sys.executable).with_name("uv")
    python = folder / "bin" / "python"
    packages = [f"onnxruntime=={VERSION}.*", "numpy<2"]
    for command in (
        ["venv", "--python", sys.executable, folder],
        ["pip", "install", "--python", python, *packages],
    ):
        done = subprocess.run([uv, *map(str, command)], capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"uv {command[0]}: {done.stderr.strip()[-200:]}")
    return python


def example(kind: str, shape: list[Any], name: str) -> np.ndarray[Any, Any]:
    """Two rows: images of 96 pixels, and sequences of 9 ids."""
    sides = [2 if axis == 0 else 96 if len(shape) == 4 else 9 for axis in range(len(shape))]
    size = [
        side if isinstance(side, int) else other for side, other in zip(shape, sides, strict=True)
    ]
    random = np.random.default_rng(0)
    if name == "lengths":
        return np.array([9, 4], TYPES[kind])[: size[0]]
    if kind == "tensor(bool)":
        return np.ones(size, bool)
    values = random.random(size) if kind == "tensor(float)" else random.integers(1, 40, size)
    return values.astype(TYPES[kind])


@pytest.mark.real
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_oldest_runtime_gives_the_same_vectors(
    oldest: Path, trained: Path, tmp_path: Path
) -> None:
    graphs = []
    for name, folder in (
        ("small", small_encoders(small_networks(offline=True))),
        ("trained", trained / ONNX),
    ):
        for source in sorted(folder.rglob("*.onnx")):
            file = tmp_path / name / source.relative_to(folder)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(source.read_bytes())
            graphs.append(file)
    expected = {}
    for file in graphs:
        session = open_session(file, threads=1)
        feeds = {
            value.name: example(value.type, value.shape, value.name)
            for value in session.get_inputs()
        }
        np.savez(file.with_suffix(".npz"), allow_pickle=False, **feeds)
        names = [value.name for value in session.get_outputs()]
        expected[file] = dict(zip(names, session.run(names, feeds), strict=True))
    done = subprocess.run(
        [oldest, "-c", PROGRAM, *graphs], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith(VERSION + ".")
    vectors = 0
    for file, outputs in expected.items():
        with np.load(file.with_suffix(".out.npz")) as found:
            for name, values in outputs.items():
                vectors += name == "embeddings"
                assert found[name] == pytest.approx(values, rel=1e-5, abs=1e-5), (file, name)
    assert vectors == 4  # images and texts of both models
