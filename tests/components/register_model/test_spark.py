"""The registered model in a local Spark: needs pyspark (``pip install '.[spark]'``) and
Java."""

import base64
import shutil
from pathlib import Path

import mlflow
import numpy as np
import pandas as pd
import pytest

from bifocal.onnx.encoders import Embedder
from bifocal.onnx.limits import Limits
from bifocal.spark import embed_table
from components.register_model.run import run as register_model
from components.register_model.spec import RegisterModelParams
from runtime.mlflow import stage_run
from tests.components.register_model.served_artifacts import encoded, make_artifacts

MODEL = "spark"
ADDRESS = f"models:/{MODEL}@candidate"


def test_spark_embeds_tables_and_columns(
    tmp_path: Path, mlflow_store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sql = pytest.importorskip(
        "pyspark.sql", reason="pyspark is not installed: pip install '.[spark]'"
    )
    if shutil.which("java") is None:
        pytest.skip("java is not installed: apt-get install openjdk-17-jre-headless")
    monkeypatch.chdir(tmp_path)
    onnx_files, metrics = make_artifacts(tmp_path)
    (tmp_path / "registration").mkdir()
    params = RegisterModelParams(seed=1, model=MODEL, alias="candidate")
    with stage_run("register_model", {"seed": 1, "register_model": params.model_dump()}, {}):
        register_model(
            params, metrics=metrics, onnx=onnx_files, registration=tmp_path / "registration"
        )
    builder = sql.SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.driver.bindAddress", "127.0.0.1").getOrCreate()
    try:
        sentences = ["a dog runs", "dog"] * (
            1 + Limits().rows // 2
        )  # more rows than a request may have
        texts = spark.createDataFrame(
            pd.DataFrame({"key": range(len(sentences)), "text": sentences})
        )
        embedded = embed_table(texts, ADDRESS)
        assert embedded.dtypes == [
            ("key", "bigint"),
            ("embedding", "array<float>"),
            ("embedding_error", "string"),
        ]
        rows = embedded.toPandas()
        pixels = np.arange(12, dtype=np.uint8).reshape(2, 2, 3)
        binary = spark.createDataFrame(pd.DataFrame({"image": [base64.b64decode(encoded(pixels))]}))
        assert binary.dtypes == [("image", "binary")]
        udf = mlflow.pyfunc.spark_udf(
            spark, ADDRESS, result_type="embedding array<float>", env_manager="local"
        )
        column = udf(sql.functions.struct("image")).embedding.alias("embedding")
        images = [
            frame.toPandas()["embedding"][0]
            for frame in (embed_table(binary, ADDRESS), binary.select(column))
        ]
        with pytest.raises(
            ValueError,
            match="the columns key, embedding, embedding_error; expected text or image or "
            "features, and no",
        ):
            embed_table(embedded, ADDRESS)
    finally:
        spark.stop()
    assert rows["key"].to_list() == list(range(len(sentences)))
    expected = np.tile(
        Embedder(onnx_files).embed_sentences(sentences[:2]), (len(sentences) // 2, 1)
    )
    np.testing.assert_allclose(np.stack(rows["embedding"].to_list()), expected, rtol=1e-6)
    for image in images:
        assert image == pytest.approx(pixels.mean(axis=2).ravel().tolist(), rel=1e-3)
