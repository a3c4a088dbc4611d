"""Published corpora with odd annotations: one of them costs at most itself, and is listed."""

import copy
import io
import zipfile
from collections.abc import Callable
from typing import Any

import numpy as np
from PIL import Image

from tests.bifocal.datasets.corpora.published import COUNT, READERS, SIZE, TEXTS, write
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
TEXTS_WITHOUT_THIRD = sorted([*TEXTS[:2], *TEXTS[3:]])
NULLS: dict[str, Edit] = {
    "COCOInstances": lambda files: files["annotations/captions_a.json"]["annotations"][2].update(
        caption=None
    ),
    "COCO": lambda files: files["dataset_coco.json"]["images"][2]["sentences"][0].update(raw=None),
}


@reported(
    "D10",
    "caption null in COCO and in Karpathy's file",
    "open_clip#179",
    {name: [TEXTS_WITHOUT_THIRD, True] for name in NULLS},
)
def null_captions(world: World) -> Any:
    seen = {}
    for reader, edit in NULLS.items():
        tables = prepared(world, reader, edit)
        seen[reader] = [
            sorted(row["text"] for row in tables["captions"]),
            len(tables["rejected"]) > 0,
        ]
    return seen


@reported("D10", "phrase null in Visual Genome", "img2dataset#344", [TEXTS_WITHOUT_THIRD, True])
def null_phrases(world: World) -> Any:
    def edit(files: dict[str, Any]) -> None:
        files["region_descriptions.json"][2]["regions"][0]["phrase"] = None

    tables = prepared(world, "VisualGenome", edit)
    return [sorted(row["phrase"] for row in tables["phrases"]), len(tables["rejected"]) > 0]


@reported(
    "D10",
    "unseen: a caption that is a list, a number, true or an object in COCO",
    "open_clip#179",
    [[3, 1]] * 4,
)
def odd_captions(world: World) -> Any:
    seen = []
    for odd in (["a", "b"], 7, True, {"raw": "a"}):

        def edit(files: dict[str, Any], odd: object = odd) -> None:
            files["annotations/captions_a.json"]["annotations"][2]["caption"] = odd

        tables = prepared(world, "COCOInstances", edit)
        seen.append(
            [len(tables["captions"]), sum(row["kind"] == "caption" for row in tables["rejected"])]
        )
    return seen


@reported("D10b", "polygons of 4 and of 5 numbers", "cocoapi#139, #348", [PHRASE_LOST] * 2)
def short_polygons(world: World) -> Any:
    odd = ([[2, 2, 9, 9]], [[2, 2, 9, 9, 5]])
    return [
        coco(world, lambda found, polygon=polygon: found.update(segmentation=polygon))
        for polygon in odd
    ]


@reported("D10b", "a short polygon among good ones", "cocoapi#135", PHRASE_LOST)
def mixed_polygons(world: World) -> Any:
    polygons = [[2, 2, 9, 2, 9, 9, 2, 9], [1, 1, 2, 2]]
    return coco(world, lambda found: found.update(segmentation=polygons))


@reported("D10b", "no iscrowd is 0", "BlenderProc#160", NOTHING_LOST)
def no_crowd(world: World) -> Any:
    return coco(world, lambda found: found.pop("iscrowd"))


@reported(
    "D10b",
    "bbox missing, null, empty; an unknown category",
    "detectron2#1692, Detectron#68",
    [PHRASE_LOST] * 4,
)
def odd_boxes(world: World) -> Any:
    edits: list[Callable[[Any], object]] = [
        lambda found: found.pop("bbox"),
        lambda found: found.update(bbox=None),
        lambda found: found.update(bbox=[]),
        lambda found: found.update(category_id=99),
    ]
    return [coco(world, edit) for edit in edits]


@reported("D10b", "an RLE of another size", "detectron2#1692", PHRASE_LOST)
def odd_rle(world: World) -> Any:
    return coco(
        world, lambda found: found.update(segmentation={"size": [40, 30], "counts": [0, 100, 1100]})
    )


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
    "D10b",
    "unseen: a null, a text and a number in place of an image or an annotation of each file",
    "ymir#1702",
    dict.fromkeys(IMAGES, True),
)
def odd_records(world: World) -> Any:
    seen = {}
    for reader in IMAGES:
        if reader == "RefCOCO":
            seen[reader] = True  # has a file per split, see null_expressions
            continue
        kept = []
        for odd in (None, "odd", 5):

            def edit(files: dict[str, Any], odd: object = odd) -> None:
                for name, content in files.items():
                    lists = content.values() if isinstance(content, dict) else [content]
                    for records in [
                        found for found in lists if isinstance(found, list) and "splits" not in name
                    ]:
                        records.append(odd)

            tables = prepared(world, reader, edit)
            kept.append(len(tables["images"]) == COUNT and len(tables["rejected"]) > 0)
        seen[reader] = all(kept)
    return seen


@reported("D10", "unseen: expression null in RefCOCO", "open_clip#179", [TEXTS_WITHOUT_THIRD, True])
def null_expressions(world: World) -> Any:
    def edit(files: dict[str, Any]) -> None:
        content = files["finetune_refcoco_train.json"]
        content["images"][2]["caption"] = None
        for name in ("val", "testA"):
            files[f"finetune_refcoco_{name}.json"] = {**content, "images": [], "annotations": []}

    tables = prepared(world, "RefCOCO", edit)
    return [sorted(row["phrase"] for row in tables["phrases"]), len(tables["rejected"]) > 0]


@reported(
    "D10b",
    "unseen: an archive with a member outside, a bomb and a device",
    "open_clip#1083",
    [2, False],
)
def archives(world: World) -> Any:
    file = world.write("zip/a.zip", b"")
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("../out.jpg", photo(1))
        archive.writestr("bomb.jpg", np.zeros(60_000_000, np.uint8).tobytes())
        archive.writestr("a.jpg", photo(2))
        archive.writestr("b.jpg", photo(3))
    return [
        len(world.indexed("zip")),
        (world.folder / "out.jpg").exists() or (world.folder / "zip/../out.jpg").exists(),
    ]


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
