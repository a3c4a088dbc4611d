"""The Open Inference Protocol with KServe's own client, in an environment of its own:
``make test-real``."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from bifocal.search.trained_model import TrainedModel
from tests.bifocal.serving.server import Server

PYTHON = Path(sys.executable).parents[1] / "kserve" / "bin" / "python"
PROGRAM = Path(__file__).with_name("kserve_client.py")


@pytest.mark.real
@pytest.mark.skipif(
    not PYTHON.exists(), reason="kserve is not installed: make test-real installs it"
)
def test_kserve_reads_every_answer_and_gets_the_embeddings(
    server: Server, demo: TrainedModel
) -> None:
    texts = ["a red star", "two blue circles"]
    command = [PYTHON, PROGRAM, f"http://127.0.0.1:{server.port}", *texts]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    for name in ("json", "binary"):
        np.testing.assert_allclose(found[name], demo.encode_text(texts), atol=1e-5)
