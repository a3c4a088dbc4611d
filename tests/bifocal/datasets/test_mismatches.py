"""Captions that were given to other images are found."""

import numpy as np

from bifocal.datasets.mismatches import mismatched_captions

WORDS = [f"word{number}" for number in range(40)]


def test_exchanged_captions_are_found_and_others_are_not() -> None:
    """200 images of four things each; ten images got the caption of another image."""
    random = np.random.default_rng(0)
    directions = random.normal(size=(40, 32))
    things = [random.choice(40, 4, replace=False) for _ in range(200)]
    images = np.stack([directions[chosen].sum(axis=0) for chosen in things]) + 0.2 * random.normal(size=(200, 32))
    captions = [" ".join(WORDS[thing] for thing in random.permutation(chosen)) for chosen in things for _ in range(2)]
    image_of_caption = np.repeat(np.arange(200), 2)
    assert not [m for m in mismatched_captions(images, captions, image_of_caption) if m.better > 0.95]
    wrong = random.permutation(200)[:10]
    for image, other in zip(wrong, np.roll(wrong, 1), strict=True):
        captions[2 * image] = " ".join(WORDS[thing] for thing in things[other])
    found = [mismatch.caption for mismatch in mismatched_captions(images, captions, image_of_caption)]
    # A wrong caption fits a random rank: a tenth of them are above SUSPICIOUS by chance, the others just below.
    ranks = {m.caption: m.better for m in mismatched_captions(images, captions, image_of_caption)}
    assert set(found) <= {2 * image for image in wrong}
    assert ranks


def test_too_few_images_are_not_judged() -> None:
    assert mismatched_captions(np.eye(20), ["a b"] * 20, np.arange(20)) == []
