"""Published corpora with odd annotations: one of them costs at most itself, and is listed."""

import copy
import io
from collections.abc import Callable
from typing import Any

from PIL import Image

from tests.bifocal.datasets.corpora.published import COUNT, READERS, SIZE, write
from tests.rehearsals.reports.world import World, photo, reported

IMAGES = {
    "COCOInstances": "a",
    "COCO": "train2014",
    "VisualGenome": "VG_100K",
    "RefCOCO": "train2014",
}
ARGUMENTS: dict[str, dict[str, object]] = {
    "COCOInstances": {"train": "a", "val": 0.25, "test": 0.25},
    "VisualGenome": {"objects": "objects.json", "splits": {"train": 2, "val": 1, "test": 1}},
}
Edit = Callable[[dict[str, Any]], object]


def prepared(
    world: World, reader: str, edit: Edit = lambda files: None
) -> dict[str, list[dict[str, Any]]]:
    """Write a corpus of four images with an edit of its files, and prepare it."""
    inner = World(world.folder / f"{reader}{len(list(world.folder.iterdir()))}", world.shared)
    files = copy.deepcopy(READERS[reader][0]())
    edit(files)
    root = inner.path("corpus/x").parent
    write(root, files)
    for number in range(1, COUNT + 1):
        file = io.BytesIO()
        Image.open(io.BytesIO(photo(number))).resize((SIZE["width"], SIZE["height"])).save(
            file, "JPEG"
        )
        inner.write(f"corpus/{IMAGES[reader]}/{number}.jpg", file.getvalue())
    return inner.prepare(reader, root, **ARGUMENTS.get(reader, {}))


def coco(world: World, edit: Callable[[Any], object]) -> list[object]:
    """Edit the third object of COCO; return numbers of images, captions, phrases, masks, listed
    entries."""
    tables = prepared(
        world,
        "COCOInstances",
        lambda files: edit(files["annotations/instances_a.json"]["annotations"][2]),
    )
    masks = sum(row["mask"] is not None for row in tables["phrases"])
    counts = [len(tables[name]) for name in ("images", "captions", "phrases")]
    return [*counts, masks, len(tables["rejected"])]


NOTHING_LOST, PHRASE_LOST = [4, 4, 4, 4, 0], [4, 4, 3, 3, 1]


@reported("D10b", "no iscrowd is 0", "BlenderProc#160", NOTHING_LOST)
def no_crowd(world: World) -> Any:
    return coco(world, lambda found: found.pop("iscrowd"))


@reported(
    "D10b",
    "unseen: bbox of texts, NaN, an object, five numbers; counts of text, negative, 10^12",
    "simmc2#11",
    [4] * 9,
)
def unseen_objects(world: World) -> Any:
    boxes = (
        ["2", "2", "x", "7"],
        [float("nan"), 1, 2, 3],
        {"x": 1},
        [1, 2, 3, 4, 5],
        [10**400, 1, 2, 3],
    )
    counts = ("%%%", [-5, 1205], [10**12], [1.5])
    edits: list[Any] = [lambda found, box=box: found.update(bbox=box) for box in boxes]
    edits += [
        lambda found, runs=runs: found.update(segmentation={"size": [30, 40], "counts": runs})
        for runs in counts
    ]
    return [coco(world, edit)[1] for edit in edits]


@reported(
    "D10b", "ids of texts, of mixed types, beyond 2^53", "torchvision#8087, cvat#4185", [[4, 4]] * 3
)
def odd_ids(world: World) -> Any:
    def renumber(image: Callable[[int], object], annotation: Callable[[int], object]) -> Edit:
        def edit(files: dict[str, Any]) -> None:
            for file in files.values():
                for entry in file["images"]:
                    entry["id"] = image(entry["id"])
                for entry in file["annotations"]:
                    entry["image_id"] = annotation(entry["image_id"])

        return edit

    edits = [
        renumber(lambda n: f"img_{n}", lambda n: f"img_{n}"),
        renumber(lambda n: n, str),
        renumber(lambda n: 2**53 + n, lambda n: 2**53 + n),
    ]
    found = [prepared(world, "COCOInstances", edit) for edit in edits]
    return [[len(tables["images"]), len(tables["captions"])] for tables in found]


@reported(
    "D10b",
    "Visual Genome: negative places, no width, a region twice",
    "visual_genome_python_driver#21",
    [4, 4],
)
def odd_regions(world: World) -> Any:
    def edit(files: dict[str, Any]) -> None:
        regions = files["region_descriptions.json"]
        regions[0]["regions"][0]["y"] = -904
        regions[1]["regions"][0]["width"] = 0
        regions[2]["regions"].append(dict(regions[2]["regions"][0]))

    tables = prepared(world, "VisualGenome", edit)
    return [len(tables["images"]), len({row["image_id"] for row in tables["images"]})]


@reported(
    "D30",
    "the advice on captions of several images is what the metric does",
    "own",
    "retrieval counts only its own image",
)
def shared_captions(world: World) -> Any:
    world.photos("photos")
    world.table("photos", row="{image},a dog in the snow")
    return world.bifocal("inspect", "photos")
