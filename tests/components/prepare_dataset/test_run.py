"""Stage prepare_dataset: parameters, seed, root and the written dataset."""

import re
from pathlib import Path

import numpy as np
import pytest
import yaml

from bifocal.datasets import read_dataset
from bifocal.datasets.corpora import Scenes
from components.prepare_dataset.run import run
from components.prepare_dataset.spec import COMPONENT, PrepareDatasetParams
from runtime import parameters
from runtime.parameters import ParameterError

SECTION = {
    "corpus": {"name": "Scenes", "train": 3, "val": 2, "test": 2, "size": 64},
    "copy_images": True,
    "max_pixels": 10_000,
    "max_rejected_fraction": 0.0,
}
README = Path(__file__).parents[3] / "components" / "prepare_dataset" / "README.md"


def validated(**changes: object) -> PrepareDatasetParams:
    sections = parameters.validate(
        {"seed": 0, "prepare_dataset": {**SECTION, **changes}}, [COMPONENT]
    )
    params = sections["prepare_dataset"]
    assert isinstance(params, PrepareDatasetParams)
    return params


def files(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_scenes_give_an_artifact_that_can_be_moved(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        counts = run(validated(), dataset=tmp_path / name)
    assert (counts["images"], counts["captions"]) == (7, 35)
    assert files(tmp_path / "a") == files(tmp_path / "b")
    moved = (tmp_path / "a").rename(tmp_path / "moved")
    dataset = read_dataset(moved)
    assert all(dataset.image_path(image_id).is_file() for image_id in dataset.images["image_id"])


def test_too_many_broken_images_name_the_setting(tmp_path, capsys):
    photos = tmp_path / "photos"
    Scenes(train=4, val=0, test=0, size=64).read(photos)
    for number, image in enumerate(sorted(photos.rglob("*.jpg"))):
        image.with_suffix(".txt").write_text("a red star")
        image.write_bytes(image.read_bytes() if number else b"broken")
    (tmp_path / "dataset").mkdir()
    corpus = {"name": "ImageFolder", "root": str(photos), "val": 0, "test": 0}
    with pytest.raises(
        ValueError, match=r"such as --set prepare_dataset\.max_rejected_fraction=0\.1$"
    ):
        run(validated(corpus=corpus), dataset=tmp_path / "dataset")
    assert "rejected: 1 images, such as " in capsys.readouterr().err


def test_interrupted_run_does_not_change_the_next(tmp_path):
    complete, repeated = tmp_path / "complete", tmp_path / "repeated"
    for folder in (complete, repeated):
        folder.mkdir()
    run(validated(), dataset=complete)
    partial = repeated / "images" / "train" / "00000.jpg"
    partial.parent.mkdir(parents=True)
    partial.write_bytes(b"half a file")
    run(validated(), dataset=repeated)
    assert files(complete) == files(repeated)


def test_seed_of_params_reaches_the_corpus(tmp_path):
    captions = []
    for seed in (0, 1):
        folder = tmp_path / str(seed)
        folder.mkdir()
        run(validated().model_copy(update={"seed": seed}), dataset=folder)
        captions.append(read_dataset(folder).captions["text"].tolist())
    assert captions[0] != captions[1]


def test_root_of_params_reaches_the_corpus(tmp_path):
    (tmp_path / "corpus").mkdir()
    params = validated(corpus={"name": "Flickr30k", "root": str(tmp_path / "corpus")})
    with pytest.raises(
        ValueError, match=r"Flickr30k needs .*corpus/dataset_flickr30k\.json: no such file"
    ):
        run(params, dataset=tmp_path)


def test_root_is_a_user_path():
    section = {**SECTION, "corpus": {"name": "Flickr8k", "root": "data/flickr8k"}}
    assert COMPONENT.user_paths(section) == {("corpus", "root"): "data/flickr8k"}
    nested = {
        "name": "Combined",
        "train": {"name": "COCO", "root": "a"},
        "test": {"name": "ReferIt", "root": "b"},
    }
    paths = COMPONENT.user_paths({**SECTION, "corpus": nested})
    assert paths == {("corpus", "train", "root"): "a", ("corpus", "test", "root"): "b"}
    local = validated(corpus=nested, copy_images=False).local_files()
    assert [reason.split(" below ")[1].split(",")[0] for reason in local] == ["a", "b"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"corpus": {"name": "Scene"}}, "did you mean 'Scenes'"),
        ({"corpus": {"name": "Scenes", "trains": 3}}, "did you mean 'train'"),
        ({"corpus": {"name": "Scenes", "seed": 3}}, "prepare_dataset.corpus.seed: leave it out"),
        ({"corpus": {"name": "Scenes", "root": "x"}}, "Scenes takes no 'root'"),
        ({"max_rejected_fraction": 2.0}, "prepare_dataset.max_rejected_fraction"),
        ({"max_pixels": 0}, "prepare_dataset.max_pixels"),
    ],
)
def test_invalid_parameters_are_rejected_before_any_work(changes, message):
    with pytest.raises(ParameterError, match=message):
        validated(**changes)


def test_examples_of_the_readme_are_valid():
    text = README.read_text()
    examples = [
        yaml.safe_load(block.split("```")[0])["prepare_dataset"]
        for block in text.split("```yaml\n")[1:]
    ]
    examples += [
        {"corpus": yaml.safe_load(corpus)} for corpus in re.findall(r"`(\{name: .*\})`", text)
    ]
    assert {example["corpus"]["name"] for example in examples} == {
        "Scenes",
        "Flickr8k",
        "ImageFolder",
        "Flickr30k",
        "Flickr30kEntities",
        "RefCOCO",
        "ReferIt",
        "VisualGenome",
        "COCO",
        "Combined",
        "Subset",
        "COCOInstances",
        "PrecomputedCaptions",
        "LaMem",
        "MediaEval",
        "VOC",
    }
    for example in examples:
        validated(**example)


def test_changed_published_features_change_the_dataset(tmp_path):
    """The features stage reads them below the root that only prepare_dataset names: the dataset
    must tell caches."""
    for name in ("train", "dev", "test"):
        (tmp_path / f"{name}_caps.txt").write_text("a dog\n" * 5)
        (tmp_path / f"{name}_ids.txt").write_text("1\n")
        np.save(tmp_path / f"{name}_ims.npy", np.ones((1, 2, 4), np.float32))
    params = validated(
        corpus={"name": "PrecomputedCaptions", "root": str(tmp_path)}, copy_images=False
    )
    datasets = []
    for value in (1.0, 1.0, 7.0):
        np.save(tmp_path / "train_ims.npy", np.full((1, 2, 4), value, np.float32))
        folder = tmp_path / f"dataset-{len(datasets)}"
        folder.mkdir()
        run(params, dataset=folder)
        datasets.append(files(folder))
    assert datasets[0] == datasets[1]
    assert datasets[0]["images.parquet"] != datasets[2]["images.parquet"]
