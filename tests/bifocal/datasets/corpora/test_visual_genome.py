"""VisualGenome on small files in the published format, filtered as in the papers."""

import json
from pathlib import Path

import pytest

from bifocal.datasets.corpora import VisualGenome
from tests.bifocal.datasets.corpora.entries import UNUSED, problems


@pytest.fixture
def genome(tmp_path: Path) -> Path:
    def image(number: int, coco: int | None) -> dict[str, object]:
        url = f"https://host/some/VG_100K{'_2' if number == 1 else ''}/{number}.jpg"
        return {"image_id": number, "url": url, "width": 80, "height": 60, "coco_id": coco}

    def region(number: int, phrase: str) -> dict[str, object]:
        return {"region_id": number, "x": 5, "y": 6, "width": 90, "height": 8, "phrase": phrase}

    (tmp_path / "image_data.json").write_text(
        json.dumps([image(1, 77), image(2, None), image(3, 78)])
    )
    regions = [
        {
            "id": 1,
            "regions": [
                region(10, "A man's café, red!"),
                region(11, "one two three four five six seven eight nine ten eleven"),
                region(12, " ."),
            ],
        },
        {"id": 2, "regions": [region(20, "the sky")]},
        {"id": 3, "regions": []},
    ]
    (tmp_path / "region_descriptions.json").write_text(json.dumps(regions))
    (tmp_path / "densecap_splits.json").write_text(
        json.dumps({"train": [2], "val": [], "test": [1]})
    )
    captions = {
        "images": [{"id": 77}],
        "annotations": [{"id": 900, "image_id": 77, "caption": "A man in a café."}],
    }
    (tmp_path / "captions_val2014.json").write_text(json.dumps(captions))
    return tmp_path


def test_visual_genome_cleans_descriptions_and_excludes_long_and_empty_ones(genome):
    corpus = VisualGenome(genome).read(UNUSED)
    assert {image.image_id: (image.split, image.path, image.size) for image in corpus.images} == {
        "1": ("test", "VG_100K_2/1.jpg", (80, 60)),
        "2": ("train", "VG_100K/2.jpg", (80, 60)),
    }
    assert [(phrase.image_id, phrase.phrase, phrase.caption_id) for phrase in corpus.phrases] == [
        ("1", "a mans cafe red", 10),
        ("2", "the sky", 20),
    ]
    # Beyond the image's 80 x 60: the writer clips it.
    assert corpus.phrases[0].boxes == ((5.0, 6.0, 95.0, 14.0),)
    assert [caption.text for caption in corpus.captions] == ["a mans cafe red", "the sky"]
    reasons = {entry.entry: entry.reason for entry in corpus.excluded}
    assert reasons == {
        "3": "in no list of densecap_splits.json",
        "region 11 of 1": "11 words, expected 1 to 10",
        "region 12 of 1": "0 words, expected 1 to 10",
    }


def test_visual_genome_with_coco_reads_shared_images_and_coco_captions(genome):
    corpus = VisualGenome(genome, coco="captions_val2014.json").read(UNUSED)
    assert [(image.image_id, image.path, image.split) for image in corpus.images] == [
        ("77", "VG_100K_2/1.jpg", "test")
    ]
    assert [
        (caption.caption_id, caption.image_id, caption.text) for caption in corpus.captions
    ] == [(900, "77", "A man in a café.")]
    phrases = [(phrase.image_id, phrase.phrase, phrase.caption_id) for phrase in corpus.phrases]
    assert phrases == [("77", "a mans cafe red", None)]


def test_second_image_with_the_same_coco_id_is_excluded(genome):
    data = json.loads((genome / "image_data.json").read_text())
    (genome / "image_data.json").write_text(json.dumps([*data, data[0] | {"image_id": 4}]))
    corpus = VisualGenome(genome, coco="captions_val2014.json").read(UNUSED)
    assert [image.image_id for image in corpus.images] == ["77"]
    reasons = {entry.entry: entry.reason for entry in corpus.excluded if entry.kind == "image"}
    assert reasons == {"4": "another image has its coco_id 77"}


def test_visual_genome_draws_splits_of_given_sizes(genome):
    """The 80,000, 10,000 and 10,000 images of Gordo and Larlus, in small."""
    counts = {"train": 1, "val": 1, "test": 1}
    corpus = VisualGenome(genome, splits=counts, seed=3).read(UNUSED)
    assert sorted(image.split for image in corpus.images) == ["test", "train", "val"]
    drawn = [
        {
            image.image_id: image.split
            for image in VisualGenome(genome, splits=counts, seed=seed).read(UNUSED).images
        }
        for seed in range(5)
    ]
    assert len({tuple(sorted(splits.items())) for splits in drawn}) > 1
    with pytest.raises(
        ValueError,
        match="3 images are fewer than the splits need: 2 for train, 1 for val, 1 for test",
    ):
        VisualGenome(genome, splits=counts | {"train": 2}).read(UNUSED)
    with pytest.raises(ValueError, match="expected a file or a number of images"):
        VisualGenome(genome, splits={"train": 3})


def test_visual_genome_names_the_invalid_file(genome):
    (genome / "region_descriptions.json").write_text('{"regions": []}')
    with pytest.raises(ValueError, match="expected a list of objects"):
        VisualGenome(genome).read(UNUSED)
    (genome / "region_descriptions.json").write_text('[{"id": 1, "regions": [{"region_id": 1}]}]')
    (problem,) = problems(VisualGenome(genome).read(UNUSED))
    assert problem == "region_descriptions.json, 1, region_id 1: no 'phrase'"


def test_visual_genome_without_a_limit_keeps_long_descriptions(genome):
    corpus = VisualGenome(genome, max_words=None).read(UNUSED)
    assert "one two three four five six seven eight nine ten eleven" in [
        caption.text for caption in corpus.captions
    ]
    assert {entry.reason for entry in corpus.excluded if entry.kind == "phrase"} == {
        "0 words, expected at least 1"
    }
    with pytest.raises(ValueError, match="max_words is 0, expected at least 1"):
        VisualGenome(genome, max_words=0)


def test_objects_of_visual_genome_are_counted_by_synset(genome):
    def item(*synsets: str) -> dict[str, object]:
        return {
            "object_id": 1,
            "x": 0,
            "y": 0,
            "w": 5,
            "h": 5,
            "names": ["thing"],
            "synsets": list(synsets),
        }

    objects = [
        {"image_id": 1, "objects": [item("man.n.01"), item("cup.n.01"), item("cup.n.01"), item()]},
        {"image_id": 3, "objects": [item("sky.n.01")]},  # in no split
    ]
    (genome / "objects.json").write_text(json.dumps(objects))
    labels = VisualGenome(genome, objects="objects.json").read(UNUSED).labels
    assert {(label.image_id, label.task, label.label, label.value) for label in labels} == {
        ("1", "synsets", "man.n.01", 1.0),
        ("1", "synsets", "cup.n.01", 2.0),
    }
    (genome / "objects.json").write_text(json.dumps([{"image_id": 1}]))
    (problem,) = problems(VisualGenome(genome, objects="objects.json").read(UNUSED))
    assert problem == "objects.json, entry 1: no 'objects'"
