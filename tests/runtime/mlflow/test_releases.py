"""The ids of deleted items reach another process, at one request for all single deletions."""

from typing import Any

import mlflow
import pytest

from runtime.mlflow.connection import connect
from runtime.mlflow.releases import LONGEST, RegistryDeletions, read_deletions

IDS = ["00003", "shop/日本 1.jpg", "../a b%20c", "item-", "x" * LONGEST]


def register(name: str) -> None:
    client = connect()
    run = client.create_run(client.create_experiment("runs"))
    client.create_registered_model(name)
    client.create_model_version(name, run.info.artifact_uri, run.info.run_id)


def test_single_deletions_are_read_from_the_list_of_files(
    mlflow_store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    register("bifocal")
    reader, writer = RegistryDeletions("bifocal"), RegistryDeletions("bifocal")
    for item_id in IDS:
        writer.add(item_id)
    writer.add_all(["00004", "00003", "00005"])
    read, load = [], mlflow.artifacts.load_dict

    def counted(uri: str) -> Any:
        read.append(uri)
        return load(uri)

    monkeypatch.setattr(mlflow.artifacts, "load_dict", counted)
    reader.refresh()
    assert set(reader) == set(writer) == {*IDS, "00004", "00005"}
    assert len(read) == 2  # the longest id, and the three that came together
    reader.refresh()
    assert len(read) == 2
    assert read_deletions("bifocal") == set(reader)
