"""Rows of a Spark table without Spark: a broken row has a reason, and the others have their
embeddings."""

import io

import numpy as np
import pyarrow as pa
import pytest
from mlflow.exceptions import MlflowException
from PIL import Image

from bifocal.onnx.pyfunc import open_model
from bifocal.search.trained_model import ONNX, TrainedModel
from runtime.mlflow.served_model import PyfuncErrors
from runtime.mlflow.spark import embedding_of


def photograph(value: int) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (64, 64), (value, 90, 30)).save(file, "PNG")
    return file.getvalue()


def test_broken_images_are_rows_with_a_reason(demo: TrainedModel) -> None:
    model = PyfuncErrors(open_model(demo.directory / ONNX))
    images = [photograph(0), photograph(50)[:-40], photograph(100), None, photograph(200)]
    batch = pa.RecordBatch.from_pydict(
        {"key": list(range(5)), "image": pa.array(images, pa.binary())}
    )
    (found,) = embedding_of(lambda: model, ["image"], ["key"])(iter([batch]))
    assert found.schema.names == ["key", "embedding", "embedding_error"]
    rows = found.to_pylist()
    assert [row["embedding"] is None for row in rows] == [False, True, False, True, False]
    assert [row["embedding_error"] is None for row in rows] == [True, False, True, False, True]
    assert "image" in rows[1]["embedding_error"]
    good = demo.encode_image([Image.open(io.BytesIO(photograph(value))) for value in (0, 100, 200)])
    np.testing.assert_allclose(
        [row["embedding"] for row in rows if row["embedding"]], good, atol=1e-5
    )


def test_a_batch_of_broken_rows_only_has_no_embedding(demo: TrainedModel) -> None:
    model = PyfuncErrors(open_model(demo.directory / ONNX))
    batch = pa.RecordBatch.from_pydict({"image": pa.array([b"no image", b""], pa.binary())})
    (found,) = embedding_of(lambda: model, ["image"], [])(iter([batch]))
    assert found.column("embedding").null_count == 2


def test_a_failure_of_the_model_is_not_a_broken_row() -> None:
    class Failing:
        def predict(self, frame: object) -> None:
            raise MlflowException("the model failed")  # INTERNAL_ERROR

    batch = pa.RecordBatch.from_pydict({"text": ["a dog"]})
    with pytest.raises(MlflowException, match="the model failed"):
        list(embedding_of(Failing, ["text"], [])(iter([batch])))
