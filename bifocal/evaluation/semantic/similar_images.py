"""Similar images: the nearest image of a query image, and what made the two similar."""

import numpy as np
import torch
from torch.nn.functional import normalize

from bifocal.draws import drawn_rows
from bifocal.evaluation.base import Result, Subject
from bifocal.evaluation.localization.heatmaps import HeatmapExample, dense_heatmap
from bifocal.localization import pair_heatmaps
from bifocal.models.batch import to_device
from bifocal.report.pictures import contact_sheet
from bifocal.report.sections import Gallery, GalleryItem, Section

NOTE = (
    "Random images with their nearest image. Heatmaps (Grad-CAM) show what contributed to the "
    "five largest products of the two vectors."
)


class SimilarImages:
    """Pairs of similar images with Grad-CAM heatmaps, for the report; no metric.

    Gordo and Larlus, CVPR 2017, section 6.
    """

    title = "Similar images"

    def __call__(self, subject: Subject) -> Result:
        """Evaluate ``subject``; skipped without single vectors per image, and if features have no
        boxes."""
        skipped = ""
        if subject.image_embeddings is None:
            skipped = f"A {type(subject.model).__name__} has no single vector per image."
        elif len(subject.split.images) < 2:
            skipped = "The split has one image."
        elif not subject.features.has_boxes:
            skipped = "The features have no boxes."
        if skipped:
            return Result(self.title, skipped=skipped)
        items, cells = [], []
        for first, second, cosine in similar_image_pairs(subject, subject.shown):
            pictures = [first.picture(subject.thumbnails), second.picture(subject.thumbnails)]
            items.append(
                GalleryItem(
                    pictures, f"{first.image_id} and {second.image_id}, cosine {cosine:.2f}"
                )
            )
            cells.append((first.image(subject.thumbnails), first.image_id))
            cells.append((second.image(subject.thumbnails), f"nearest image, cosine {cosine:.2f}"))
        sections = [Section(self.title, NOTE, [Gallery(items)])]
        return Result(
            self.title,
            sections=sections,
            figures={"similar_images": contact_sheet(self.title, cells, 4)},
        )


def similar_image_pairs(
    subject: Subject, count: int
) -> list[tuple[HeatmapExample, HeatmapExample, float]]:
    """Return ``count`` drawn images of a model with single vectors, the nearest image of each, and
    their cosine."""
    assert subject.image_embeddings is not None
    images, image_ids = normalize(subject.image_embeddings, dim=1), subject.pairs.image_ids
    pairs = []
    for query in drawn_rows(image_ids, count, subject.seed):
        scores = images @ images[query]
        scores[query] = -torch.inf
        nearest = int(scores.argmax())
        with torch.inference_mode():
            first, second = (
                subject.model.image_encoder.last_activations(
                    to_device(
                        subject.features.gather(subject.features.rows([image_ids[row]])),
                        subject.model.device,
                    )
                )
                for row in (query, nearest)
            )
            heatmaps = pair_heatmaps(
                first.embed, first.cells, second.cells, embed_second=second.embed
            )
        examples = [
            HeatmapExample(
                image_ids[row], dense_heatmap(scores, activations.boxes), np.empty((0, 4))
            )
            for row, scores, activations in zip(
                (query, nearest), heatmaps, (first, second), strict=True
            )
        ]
        pairs.append((examples[0], examples[1], float(images[query] @ images[nearest])))
    return pairs
