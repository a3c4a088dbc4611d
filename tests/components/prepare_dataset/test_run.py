import json
from pathlib import Path

import pytest
import yaml

from bifocal.datasets import read_dataset
from components.prepare_dataset.run import run
from components.prepare_dataset.spec import COMPONENT, PrepareDatasetParams
from runtime import parameters
from runtime.parameters import ParameterError

SECTION = {
    "source": {"name": "Scenes", "train": 3, "val": 2, "test": 2, "size": 64},
    "root": None,
    "copy_images": True,
    "max_pixels": 10_000,
    "max_rejected_fraction": 0.0,
}
README = Path(__file__).parents[3] / "components" / "prepare_dataset" / "README.md"


def validated(**changes: object) -> PrepareDatasetParams:
    sections = parameters.validate({"seed": 0, "prepare_dataset": {**SECTION, **changes}}, [COMPONENT])
    params = sections["prepare_dataset"]
    assert isinstance(params, PrepareDatasetParams)
    return params


def files(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_scenes_become_an_artifact_that_travels(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        counts = run(validated(), dataset=tmp_path / name)
    assert (counts["images"], counts["captions"]) == (7, 35)
    assert files(tmp_path / "a") == files(tmp_path / "b")
    moved = (tmp_path / "a").rename(tmp_path / "moved")
    dataset = read_dataset(moved)
    assert all(dataset.image_path(image_id).is_file() for image_id in dataset.images["image_id"])


def test_a_killed_run_leaves_nothing_that_changes_the_next(tmp_path):
    whole, again = tmp_path / "whole", tmp_path / "again"
    for folder in (whole, again):
        folder.mkdir()
    run(validated(), dataset=whole)
    half = again / "images" / "train" / "00000.jpg"
    half.parent.mkdir(parents=True)
    half.write_bytes(b"half a file")
    run(validated(), dataset=again)
    assert files(whole) == files(again)


def test_the_seed_of_params_is_the_seed_of_the_source(tmp_path):
    captions = []
    for seed in (0, 1):
        folder = tmp_path / str(seed)
        folder.mkdir()
        run(validated().model_copy(update={"seed": seed}), dataset=folder)
        captions.append(read_dataset(folder).captions["text"].tolist())
    assert captions[0] != captions[1]


def test_a_root_reaches_the_source(tmp_path):
    (tmp_path / "corpus").mkdir()
    params = validated(source={"name": "Flickr30k"}, root=str(tmp_path / "corpus"))
    with pytest.raises(ValueError, match=r"Flickr30k needs .*corpus/dataset_flickr30k\.json: no such file"):
        run(params, dataset=tmp_path)


def test_scenes_read_no_root(tmp_path):
    with pytest.raises(ValueError, match="Scenes reads no files: set it to null"):
        run(validated(root=str(tmp_path)), dataset=tmp_path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"source": {"name": "Scene"}}, "did you mean 'Scenes'"),
        ({"source": {"name": "Scenes", "trian": 3}}, "did you mean 'train'"),
        ({"source": {"name": "Scenes", "seed": 3}}, "prepare_dataset.source.seed: leave it out"),
        ({"source": {"name": "COCO", "root": "x"}}, "prepare_dataset.source.root: leave it out"),
        ({"max_rejected_fraction": 2.0}, "prepare_dataset.max_rejected_fraction"),
        ({"max_pixels": 10**9}, "prepare_dataset.max_pixels"),
    ],
)
def test_wrong_parameters_are_told_before_any_work(changes, message):
    with pytest.raises(ParameterError, match=message):
        validated(**changes)


def test_the_readmes_examples_are_valid():
    blocks = README.read_text().split("```yaml\n")[1:]
    examples = [yaml.safe_load(block.split("```")[0])["prepare_dataset"] for block in blocks]
    assert {example["source"]["name"] for example in examples} == {
        "Scenes",
        "Flickr8k",
        "Flickr30k",
        "COCO",
        "COCOInstances",
        "PrecomputedCaptions",
        "LaMem",
        "MediaEval",
        "VOC",
    }
    base = json.loads(json.dumps(examples[0]))
    for example in examples:
        parameters.validate({"seed": 0, "prepare_dataset": {**base, **example}}, [COMPONENT])
