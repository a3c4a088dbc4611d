"""Semantic retrieval: images that mean the same are close, learned from their captions.

    python examples/semantic_retrieval.py --images 400

Gordo and Larlus, "Beyond instance-level image retrieval: leveraging captions to learn a global
visual representation for semantic retrieval", CVPR 2017. Queries are images, and images with words
added and subtracted. Writes runs/examples/semantic_retrieval.png.
"""

from pathlib import Path

import click

from bifocal.evaluation import SemanticRetrieval
from bifocal.evaluation.base import Subject
from bifocal.losses import SemanticTripletLoss
from bifocal.onnx.images import open_image
from bifocal.report.pictures import contact_sheet
from bifocal.search import Search, SearchIndex, TorchEmbedder
from bifocal.training import TrainingPhase, new_model, prepare_inputs, train_phases
from bifocal.training.batches import MinedTriplets
from bifocal.training.schedules import MultiStep

PLUS, MINUS = "a red star", "water"


def main(images: int = 400, home: Path = Path("runs/examples")) -> dict[str, float]:
    """Train on ``images`` scenes, write a picture to ``home``, and return the printed values, in
    percent."""
    # Data: scenes, a small backbone that is trained on them, whose cells are averaged, and the
    # tf-idf of all captions of an image as one text, section 3.
    inputs = prepare_inputs(
        home,
        corpus={
            "name": "Scenes",
            "train": images,
            "val": images // 4,
            "test": images // 2,
            "size": 96,
        },
        extractor={
            "name": "Grid",
            "backbone": "resnet10t",
            "stage": 3,
            "size": 96,
            "model_arguments": {"channels": [16, 32, 64, 128], "stem_width": 8},
        },
        weights={"name": "TrainOnPhrases", "epochs": max(1, images // 32), "min_count": 5},
        vectorizer={"name": "TFIDF", "documents": "images", "form": "stem", "min_count": 2},
        seed=1,
    )

    # Image and text are linear maps to unit vectors. The paper has R-MAC of ResNet-101 in place of
    # the mean cell.
    encoders = {"image_encoder": "LinearEncoder", "text_encoder": "BagOfWordsEncoder"}
    model = new_model({"name": "TwoBranchModel", "dim": 256, **encoders}, inputs, seed=1)

    def ndcg() -> float:
        subject = Subject(
            model, inputs.dataset, "test", inputs.features, inputs.text, inputs.vectorizer
        )
        return float(SemanticRetrieval()(subject).metrics["semantic"]["NDCG_area"])

    untrained = ndcg()

    # A triplet is a query q, an image d+ with similar captions and an image d- with others. The
    # visual loss is max(0, m - q d+ + q d-) (1); in the joint losses the query (2), or the answers
    # (3), are texts. The triplets are mined before each epoch: the triplets with the largest loss
    # in a pool of images, section 5.1.
    phase = TrainingPhase(
        batches=MinedTriplets(
            batch_size=32,
            neighbors=max(4, images // 50),
            queries_per_pool=images // 2,
            positives_per_query=4,
            triplets_per_pair=50,
            steps_per_epoch=images // 6,
        ),
        loss=SemanticTripletLoss(margin=0.2),
        epochs=24,
        learning_rate=0.002,
        schedule=MultiStep([12, 18], gamma=0.5),
    )
    train_phases(model, [phase], inputs, seed=1)

    # NDCG against the tf-idf similarity of the captions, which the model does not see for test
    # images, section 6.
    subject = Subject(
        model, inputs.dataset, "test", inputs.features, inputs.text, inputs.vectorizer
    )
    metrics = SemanticRetrieval()(subject).metrics["semantic"]
    results = {
        "NDCG": metrics["NDCG_area"],
        "NDCG, untrained model": untrained,
        "NDCG, random order": metrics["chance"]["NDCG_area"],
    }
    for name, value in results.items():
        print(f"{name:24} {value:5.1f} %")

    # Figure 5: an image, and the same image plus and minus words.
    image_ids = subject.split.images["image_id"].tolist()
    search = Search(
        SearchIndex.of(image_ids, subject.image_embeddings), TorchEmbedder(model, inputs.vectorizer)
    )
    query = str(image_ids[0])
    shown = [(open_image(subject.split.image_path(query)), "query")]
    for title, hits in {
        "nearest": search(like=query, k=2),
        f"+ {PLUS}": search(like=query, plus=[PLUS], k=2),
        f"+ {PLUS} - {MINUS}": search(like=query, plus=[PLUS], minus=[MINUS], k=2),
    }.items():
        shown += [
            (open_image(subject.split.image_path(hit.id)), f"{title}: {hit.score:.2f}")
            for hit in hits
        ]
    contact_sheet("Semantic retrieval", shown).save(home / "semantic_retrieval.png")
    print(f"-> {home / 'semantic_retrieval.png'}")
    return results


@click.command()
@click.option(
    "--images", default=400, show_default=True, help="Scenes to train on; all other sizes follow."
)
def command(images: int) -> None:
    """Train semantic retrieval on drawn scenes."""
    main(images)


if __name__ == "__main__":
    command()
