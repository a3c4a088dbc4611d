"""Files of somebody else: a run folder, an archive and a table that commands of the user open."""

import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

ITEM = "test-00000"
JOURNAL = {
    "renamed": [
        [".change/payload", "../../home/bashrc"],
        ["../../home/secret.txt", "onnx/stolen.txt"],
    ],
    "deleted": ["../../home/photos"],
    "mark": None,
}
HEADER = tarfile.TarInfo("x")
HEADER.type, HEADER.size = b"x", 11


def plant_journal(root: Path) -> None:
    (root / ".change").mkdir(parents=True)
    (root / ".change" / "payload").write_text("touch pwned")
    (root / ".change" / "journal.json").write_text(json.dumps(JOURNAL))


def plant_link(place: Path, target: Path) -> None:
    if place.is_dir():
        shutil.rmtree(place)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.unlink(missing_ok=True)
    place.symlink_to(target)


def plant_hard_link(place: Path, target: Path) -> None:
    place.unlink(missing_ok=True)
    place.hardlink_to(target)


def plant_yaml(world: Path) -> None:
    (world / "foreign" / "params.yaml").write_text("index: {directory: [/etc]}\nnone")


def plant_report(world: Path) -> None:
    """Name the images of a collection by a folder above it, and its model by a command."""
    artifacts = world / "foreign" / "artifacts"
    file = artifacts / "collection" / "collection.json"
    content = json.loads(file.read_text())
    content["root"] = "../../../home/photos"
    content["model"]["name"] = 'm$(touch PWNED)"); open("PWNED", "w"); ("'
    file.write_text(json.dumps(content))
    for manifest in artifacts.rglob("manifest.json"):
        manifest.unlink()


def plant_keywords(world: Path) -> None:
    """Let the words of an index name items that it does not have."""
    index = world / "foreign" / "artifacts" / "index"
    words = pa.table(
        {
            "word": ["star"],
            "items": pa.array([[2**31 - 1]], pa.large_list(pa.int32())),
            "weights": pa.array([[1.0]], pa.large_list(pa.float32())),
        }
    )
    with pa.ipc.new_file(str(index / "keywords.arrow"), words.schema) as writer:
        writer.write_table(words)
    (index / "manifest.json").unlink(missing_ok=True)


def plant_tables(world: Path) -> None:
    """A table of 40,000 equal captions of 40,000 letters, which a small file stores once."""
    (world / "photographs").mkdir()
    rows = 40_000
    text = pa.DictionaryArray.from_arrays(pa.array([0] * rows), pa.array(["a" * 40_000]))
    table = pa.table({"image": pa.array(["1.jpg"] * rows), "caption": text})
    pq.write_table(table, world / "photographs" / "captions.parquet")
    shutil.copy(world / "foreign" / "images" / "00001.jpg", world / "photographs" / "1.jpg")


def plant_partial(artifacts: Path, target: Path) -> None:
    partial = artifacts / "collection.partial"
    partial.mkdir()
    (partial / "fingerprint.json").write_text("{}")
    plant_link(partial / "vectors", target)


def plant_brackets(world: Path) -> None:
    for path in (world / "foreign" / "artifacts").rglob("manifest.json"):
        path.write_text(100_000 * "[")


def plant_fingerprint(world: Path) -> None:
    partial = world / "other" / "artifacts" / "collection.partial"
    partial.mkdir(parents=True)
    (partial / "fingerprint.json").write_text(100_000 * "[")
    (partial / "started.json").write_text(100_000 * "[")


def plant_images(world: Path) -> None:
    """Let the collection have images outside of it, by names and by links."""
    collection = world / "foreign" / "artifacts" / "collection"
    items = pq.read_table(collection / "items.parquet")
    place = items.schema.get_field_index("image")
    names = ["../../../../home/secret.txt", str(world / "home" / "secret.txt")] * len(items)
    column = pa.array(names[: len(items)])
    pq.write_table(
        items.set_column(place, items.schema.field("image"), column), collection / "items.parquet"
    )


def plant_archive(world: Path) -> None:
    (world / "a.tar").write_bytes((HEADER.tobuf() + b"11 path=abc\n".ljust(512, b"\0")) * 3000)


def plant_names(world: Path) -> None:
    (world / "photographs").mkdir()
    for name in (r"\[x].jpg", r"\[link=file:\etc].jpg", "\x1b]0;PWN\x07.jpg", "[" * 160 + ".jpg"):
        (world / "photographs" / name).write_bytes(b"none")
    (world / "photographs" / "captions.csv").write_text("image,caption,\x1b]0;PWN\x07[/x]\na,b,c\n")


CASES: dict[str, tuple[Callable[[Path], object], list[str]]] = {
    "a journal in a run that is searched": (
        lambda world: plant_journal(world / "foreign" / "artifacts"),
        ["search", "a dog", "--run", "foreign"],
    ),
    "a journal in a run of which an item is deleted": (
        lambda world: plant_journal(world / "foreign" / "artifacts"),
        ["delete", ITEM, "--run", "foreign"],
    ),
    "a journal in the present folder": (
        plant_journal,
        ["export", "out", "--format", "parquet", "--run", "foreign"],
    ),
    "a link called .change": (
        lambda world: plant_link(
            world / "foreign" / "artifacts" / ".change", world / "home" / "photos"
        ),
        ["delete", ITEM, "--run", "foreign"],
    ),
    "a link called NAME.partial": (
        lambda world: plant_link(world / "out.partial", world / "home" / "photos"),
        ["export", "out", "--format", "parquet", "--run", "foreign"],
    ),
    "a link in place of the images": (
        lambda world: plant_link(
            world / "foreign" / "artifacts" / "collection" / "images", world / "home"
        ),
        ["delete", ITEM, "--run", "foreign"],
    ),
    "images outside of a collection": (plant_images, ["delete", ITEM, "--run", "foreign"]),
    "a collection whose root and model are foreign": (
        plant_report,
        ["export", "out", "--format", "parquet", "--run", "foreign"],
    ),
    "a collection whose root is foreign, of which an item is deleted": (
        plant_report,
        ["delete", ITEM, "--run", "foreign"],
    ),
    "words of items that are not there": (
        plant_keywords,
        ["search", "a star", "--mode", "hybrid", "--run", "foreign"],
    ),
    "a hard link called corrections.csv": (
        lambda world: plant_hard_link(
            world / "foreign" / "corrections.csv", world / "home" / "bashrc"
        ),
        ["correct", ITEM, "touch pwned", "--run", "foreign"],
    ),
    "a hard link called search.png": (
        lambda world: plant_hard_link(world / "foreign" / "search.png", world / "home" / "bashrc"),
        ["search", "a star", "--run", "foreign"],
    ),
    "parameters of another form": (
        plant_yaml,
        ["index", "foreign/images", "--run", "foreign", "--folder", "foreign"],
    ),
    "a table of 1.6 GB in 300 kB": (plant_tables, ["inspect", "photographs"]),
    "a link called search.png": (
        lambda world: plant_link(world / "foreign" / "search.png", world / "home" / "bashrc"),
        ["search", "a star", "--run", "foreign"],
    ),
    "a link called where.png": (
        lambda world: plant_link(world / "foreign" / "where.png", world / "home" / "bashrc"),
        ["where", "foreign/images/00001.jpg", "a star", "--run", "foreign"],
    ),
    "a link called inspection.html": (
        lambda world: plant_link(world / "inspection.html", world / "home" / "bashrc"),
        ["inspect", "foreign/images"],
    ),
    "a link called corrections.csv": (
        lambda world: plant_link(world / "foreign" / "corrections.csv", world / "home" / "bashrc"),
        ["correct", ITEM, "touch pwned", "--run", "foreign"],
    ),
    "a link in the folder of a killed index": (
        lambda world: plant_partial(world / "foreign" / "artifacts", world / "home" / "photos"),
        ["index", "foreign/images", "--run", "foreign", "--folder", "foreign"],
    ),
    "a link called params.yaml.new": (
        lambda world: plant_link(world / "other" / "params.yaml.new", world / "home" / "bashrc"),
        ["index", "foreign/images", "--run", "foreign", "--folder", "other"],
    ),
    "manifests and states of 100,000 brackets": (
        plant_brackets,
        ["delete", ITEM, "--run", "foreign"],
    ),
    "a fingerprint of 100,000 brackets": (
        plant_fingerprint,
        ["index", "foreign/images", "--run", "foreign", "--folder", "other"],
    ),
    "3,000 chained headers of an archive": (plant_archive, ["inspect", "a.tar"]),
    "markup and codes of a terminal in names": (plant_names, ["inspect", "photographs"]),
}


def attack_files(folder: Path, run: Path) -> list[tuple[str, ...]]:
    """Run a command of the user on each; return the rows of the table."""
    rows = []
    for number, (name, (plant, command)) in enumerate(CASES.items()):
        world = folder / f"world{number}"
        shutil.copytree(run, world / "foreign")
        (world / "home" / "photos").mkdir(parents=True)
        for file in ("photos/1.jpg", "bashrc", "secret.txt"):
            (world / "home" / file).write_text("mine")
        plant(world)
        done = subprocess.run(
            [sys.executable, "-P", "-m", "bifocal", *command],
            cwd=world,
            env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        shown = done.stdout + done.stderr
        kept = {
            path.name: path.read_text() for path in (world / "home").rglob("*") if path.is_file()
        }
        assert kept == dict.fromkeys(("1.jpg", "bashrc", "secret.txt"), "mine"), f"{name}: {kept}"
        assert not (world / "foreign" / "artifacts" / "onnx" / "stolen.txt").exists(), name
        assert not (world / "PWNED").exists(), f"{name}: a name is run"
        assert "Traceback" not in shown, f"{name}: {shown[-2000:]}"
        assert "\x1b]0;" not in shown, f"{name}: a code of a terminal is printed"
        rows.append((f"files: {name}", f"exit code {done.returncode}", "-", "-", "-"))
    return rows
