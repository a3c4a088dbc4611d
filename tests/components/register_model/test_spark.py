"""The registered model in a local Spark: needs pyspark (``pip install bifocal[spark]``) and Java."""

import base64
import shutil
from pathlib import Path

import mlflow
import numpy as np
import pandas as pd
import pytest

from bifocal.serving.embedder import Embedder
from bifocal.serving.limits import Limits
from components.register_model.run import run as register_model
from components.register_model.spec import RegisterModelParams
from runtime.mlflow import stage_run
from tests.components.register_model.test_serving import encoded, make_artifacts

MODEL = "spark"


def test_spark_embeds_more_rows_than_a_request_may_have(
    tmp_path: Path, mlflow_store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sql = pytest.importorskip("pyspark.sql", reason="pyspark is not installed: pip install bifocal[spark]")
    if shutil.which("java") is None:
        pytest.skip("java is not installed: apt-get install openjdk-17-jre-headless")
    monkeypatch.chdir(tmp_path)
    onnx_files, metrics = make_artifacts(tmp_path)
    (tmp_path / "registration").mkdir()
    params = RegisterModelParams(seed=1, model=MODEL, alias="candidate")
    with stage_run("register_model", {"seed": 1, "register_model": params.model_dump()}, {}):
        register_model(params, metrics=metrics, onnx=onnx_files, registration=tmp_path / "registration")
    builder = sql.SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.driver.bindAddress", "127.0.0.1").getOrCreate()
    try:
        embed = mlflow.pyfunc.spark_udf(
            spark, f"models:/{MODEL}@candidate", result_type="embedding array<float>", env_manager="local"
        )
        sentences = ["a dog runs", "dog"]
        rows = pd.DataFrame({"text": sentences * (1 + Limits().rows // 2)})
        frame = spark.createDataFrame(rows).select(embed(sql.functions.struct("text")).embedding.alias("embedding"))
        embeddings = np.stack(frame.toPandas()["embedding"].to_list())
        pixels = np.arange(12, dtype=np.uint8).reshape(2, 2, 3)
        binary = spark.createDataFrame(pd.DataFrame({"image": [base64.b64decode(encoded(pixels))]}))
        assert dict(binary.dtypes) == {"image": "binary"}
        images = binary.select(embed(sql.functions.struct("image")).embedding.alias("embedding")).toPandas()
    finally:
        spark.stop()
    assert len(embeddings) > Limits().rows
    assert images["embedding"][0] == pytest.approx(pixels.mean(axis=2).ravel().tolist(), rel=1e-3)
    np.testing.assert_allclose(embeddings[:2], Embedder(onnx_files).embed_sentences(sentences), rtol=1e-6)
