"""A corpus on S3 for tests: drawn scenes in the file formats of Flickr8k, below ``s3://bucket/flickr8k``."""

from pathlib import Path

import boto3

from bifocal.datasets.corpora import Scenes
from bifocal.datasets.corpora.flickr8k import LISTS, TOKENS

ADDRESS = "s3://bucket/flickr8k"


def scene_files(
    folder: Path, *, train: int, val: int, test: int, seed: int = 0
) -> dict[str, bytes]:
    """Draw scenes in ``folder``; return the files of their corpus by name.

    Args:
        train, val, test: images of each split.
        seed: of the scenes; a longer split begins with the images of a shorter split.
    """
    corpus = Scenes(train=train, val=val, test=test, size=64, seed=seed).read(folder)
    name_of = {image.image_id: str(image.path).replace("/", "-") for image in corpus.images}
    files = {
        f"images/{name_of[image.image_id]}": (folder / str(image.path)).read_bytes()
        for image in corpus.images
    }
    for split, file in LISTS.items():
        names = [name_of[image.image_id] for image in corpus.images if image.split == split]
        files[file] = "\n".join([*names, ""]).encode()
    captions = [
        f"{name_of[caption.image_id]}#{n % 5}\t{caption.text}"
        for n, caption in enumerate(corpus.captions)
    ]
    return files | {TOKENS: "\n".join([*captions, ""]).encode()}


def upload_scenes(folder: Path, *, train: int, val: int, test: int, seed: int = 0) -> None:
    """Upload the files of ``scene_files``."""
    client = boto3.client("s3")
    for name, content in scene_files(folder, train=train, val=val, test=test, seed=seed).items():
        client.put_object(Bucket="bucket", Key=f"flickr8k/{name}", Body=content)
