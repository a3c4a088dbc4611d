"""A run in MTEB: its own tasks on images of the demo, against the vectors of the run."""

from typing import Any

import numpy as np
import pytest
from PIL import Image

from bifocal.search.trained_model import TrainedModel
from tests.margins import beyond_chance

pytest.importorskip("mteb")

ROWS = 8


@pytest.fixture(scope="module")
def encoder(demo: TrainedModel) -> Any:
    from examples.mteb_encoder import MTEBEncoder

    return MTEBEncoder(demo.directory)


@pytest.fixture(scope="module")
def images(demo: TrainedModel) -> list[Image.Image]:
    return [Image.open(str(demo.collection.image(row))).convert("RGB") for row in range(ROWS)]


@pytest.fixture(scope="module")
def captions(demo: TrainedModel) -> list[str]:
    return [demo.collection.captions(row)[0] for row in range(ROWS)]


def scores_of(encoder: Any, task: Any) -> dict[str, float]:
    import mteb

    result = mteb.evaluate(
        encoder, [task], cache=None, overwrite_strategy="always", raise_error=True
    )
    scores: dict[str, float] = result.task_results[0].scores["test"][0]
    return scores


def test_zero_shot_classification_is_the_highest_cosine(
    encoder: Any, demo: TrainedModel, images: list[Image.Image], captions: list[str]
) -> None:
    from datasets import Dataset, DatasetDict
    from mteb.mocks.mock_tasks.zeroshot_classification import MockZeroShotClassificationTask

    class Task(MockZeroShotClassificationTask):  # type: ignore[misc]
        def load_data(self, **_: Any) -> None:
            split = Dataset.from_dict({"image": images, "label": list(range(ROWS))})
            self.dataset, self.data_loaded = DatasetDict({"test": split}), True

        def get_candidate_labels(self) -> list[str]:
            return captions

    chosen = (demo.encode_image(images) @ demo.encode_text(captions).T).argmax(axis=1)
    accuracy = np.mean(chosen == np.arange(ROWS))
    assert accuracy > beyond_chance(ROWS, 1 / ROWS)
    assert scores_of(encoder, Task())["accuracy"] == pytest.approx(accuracy)


def test_images_are_found_by_sentences(
    encoder: Any, demo: TrainedModel, images: list[Image.Image], captions: list[str]
) -> None:
    from datasets import Dataset
    from mteb.abstasks.retrieval_dataset_loaders import RetrievalSplitData
    from mteb.mocks.mock_tasks.retrieval import MockAny2AnyRetrievalT2ITask

    class Task(MockAny2AnyRetrievalT2ITask):  # type: ignore[misc]
        def load_data(self, **_: Any) -> None:
            data = RetrievalSplitData(
                queries=Dataset.from_dict(
                    {"id": [f"q{row}" for row in range(ROWS)], "text": captions}
                ),
                corpus=Dataset.from_dict(
                    {"id": [f"d{row}" for row in range(ROWS)], "image": images}
                ),
                relevant_docs={f"q{row}": {f"d{row}": 1} for row in range(ROWS)},
                top_ranked=None,
            )
            self.dataset, self.data_loaded = {"default": {"test": data}}, True

    chosen = (demo.encode_text(captions) @ demo.encode_image(images).T).argmax(axis=1)
    assert scores_of(encoder, Task())["recall_at_1"] == pytest.approx(
        np.mean(chosen == np.arange(ROWS))
    )


def test_an_image_with_a_text_has_the_sum_of_both_vectors(
    encoder: Any, demo: TrainedModel, images: list[Image.Image], captions: list[str]
) -> None:
    batches = [
        {"image": images[:5], "text": captions[:5]},
        {"image": images[5:], "text": captions[5:]},
    ]
    total = demo.encode_image(images) + demo.encode_text(captions)
    expected = total / np.linalg.norm(total, axis=1, keepdims=True)
    np.testing.assert_allclose(encoder.encode(batches), expected, atol=1e-4)
    with pytest.raises(ValueError, match="a batch has audio: this encoder reads image and text"):
        encoder.encode([{"audio": []}])
