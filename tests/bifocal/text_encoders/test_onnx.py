"""Text encoders as ONNX: batch and time stay dynamic. One fresh process each, as torch's exporter needs."""

import subprocess
import sys
from pathlib import Path

import pytest

EXPORT = """
import sys
import numpy, onnxruntime, torch
from bifocal import text_encoders

name, path, arguments = sys.argv[1], sys.argv[2], eval(sys.argv[3])
torch.manual_seed(0)
encoder = getattr(text_encoders, name)(input_dim=5, dim=6, **arguments).eval()
batch, time = torch.export.Dim("batch"), torch.export.Dim("time")
torch.onnx.export(
    encoder, (torch.randn(3, 7, 5), torch.tensor([7, 3, 1])), path, dynamo=True, verbose=False,
    dynamic_shapes={"values": {0: batch, 1: time}, "lengths": {0: batch}},
    input_names=["values", "lengths"], output_names=["embedding"],
)
session = onnxruntime.InferenceSession(path)
assert [type(size) for size in session.get_inputs()[0].shape] == [str, str, int]
for batch, time in ((1, 1), (1, 9), (5, 2), (4, 31)):
    values, lengths = torch.randn(batch, time, 5), torch.randint(1, time + 1, (batch,))
    (found,) = session.run(None, {"values": values.numpy(), "lengths": lengths.numpy()})
    numpy.testing.assert_allclose(found, encoder(values, lengths).detach(), atol=1e-5)
"""


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("SRUEncoder", {"layers": 2}),
        ("GRUEncoder", {"layers": 2, "bidirectional": True}),
        ("LSTMEncoder", {"layers": 1, "bidirectional": True}),
    ],
)
def test_exports_with_dynamic_batch_and_time(tmp_path: Path, name: str, arguments: dict[str, object]) -> None:
    pytest.importorskip("onnxscript")
    command = [sys.executable, "-c", EXPORT, name, str(tmp_path / "encoder.onnx"), repr(arguments)]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
