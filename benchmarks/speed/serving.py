"""How fast does a trained model answer without torch?

    python -m benchmarks run speed.serving [--run runs/flickr8k/best] [--images 1000]

``--run`` is a folder whose ``artifacts`` hold dataset, features, text, embedding and onnx, as
``make repro`` writes them. A process without torch embeds each caption and each image file of the
split "val" by the modules that serve them, one at a time, on one core. The floor is the same
onnxruntime sessions on inputs that are ready: the rest is tokens, decoding and resizing. Times are
medians of CPU time: on an idle core, wall time is the same; on a busy one, it contains other work.
"""

import argparse
import base64
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from benchmarks.common import Report

SENTENCE_MS, IMAGE_MS, RECALL = 7.0, 45.0, 0.2
WARM_UP, TIMED, BATCH = 5, 200, 64


def serve(onnx: Path, texts: Sequence[str], files: Sequence[str], output: Path) -> None:
    """Embed all texts and files without torch, and write the vectors and the median times of one
    input, in ms."""
    sys.modules["torch"] = cast(Any, None)  # an import of torch is an error from here on
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    from bifocal.onnx.encoders import Embedder
    from bifocal.onnx.sessions import run_graph

    embedder = Embedder(onnx, threads=1)
    images = [base64.b64encode(Path(file).read_bytes()).decode() for file in files]

    def ready_sentence(text: str) -> Callable[[], object]:
        arrays = embedder.sentences.read([text])
        return lambda: run_graph(embedder.texts, arrays)

    def ready_image(image: str) -> Callable[[], object]:
        inputs = embedder.read_images([image])
        if embedder.backbone is None:
            return lambda: embedder.encode_inputs(inputs)
        shape = embedder.backbone.get_inputs()[0].shape[2:]
        pixels = np.zeros((1, 3, *shape), np.uint8)
        backbone = embedder.backbone
        return lambda: (run_graph(backbone, (pixels,)), embedder.encode_inputs(inputs))

    times = {
        "sentence": timed(texts[:TIMED], lambda text: lambda: embedder.embed_sentences([text])),
        "image": timed(images[:TIMED], lambda image: lambda: embedder.embed_images([image])),
        "bare sentence": timed(texts[:TIMED], ready_sentence),
        "bare image": timed(images[:TIMED], ready_image),
    }
    vectors = [
        np.concatenate(
            [embed(inputs[start : start + BATCH]) for start in range(0, len(inputs), BATCH)]
        )
        for embed, inputs in ((embedder.embed_images, images), (embedder.embed_sentences, texts))
    ]
    np.savez(output, images=vectors[0], captions=vectors[1], times=json.dumps(times))


def timed(
    inputs: Sequence[str], prepare: Callable[[str], Callable[[], object]]
) -> tuple[float, float]:
    """Return the median wall time and CPU time, in ms, of the call that ``prepare`` returns for
    each input."""
    times = []
    for value in [*inputs[:WARM_UP], *inputs]:
        call = prepare(value)
        start = time.perf_counter(), time.process_time()
        call()
        times.append((time.perf_counter() - start[0], time.process_time() - start[1]))
    wall, cpu = 1000 * np.median(times[WARM_UP:], axis=0)
    return float(wall), float(cpu)


def recalls(images: Any, captions: Any, image_of_caption: Any) -> tuple[float, float]:
    """Return R@1 of captions for an image and of images for a caption, in percent."""
    from bifocal.metrics import retrieval_ranks

    caption_ranks, image_ranks = retrieval_ranks(images, captions, image_of_caption)
    return 100 * caption_ranks.recall(1), 100 * image_ranks.recall(1)


def measure(report: Report, run: Path, count: int) -> None:
    """Report times and recalls of the model of a run."""
    import torch

    from bifocal.datasets import read_dataset
    from bifocal.features import open_features
    from bifocal.models import load_model
    from bifocal.models.batch import ImageCaptionPairs, dual_encoder, embed
    from bifocal.text import TextStore

    artifacts = run / "artifacts"
    dataset = read_dataset(artifacts / "dataset")
    split = dataset.split("val").first(count)
    model = dual_encoder(load_model(artifacts / "embedding").eval())
    pairs = ImageCaptionPairs(
        split, open_features(artifacts / "features", dataset), TextStore(artifacts / "text")
    )
    with torch.inference_mode():
        expected = recalls(*embed(model, pairs), pairs.image_of_caption)
    files = [str(split.image_path(image_id)) for image_id in split.images["image_id"]]
    served = serve_in_new_process(artifacts / "onnx", split.captions["text"].tolist(), files)
    images, captions = (torch.from_numpy(served[name]) for name in ("images", "captions"))
    found = recalls(images, captions, pairs.image_of_caption)
    times = json.loads(str(served["times"]))
    for kind, bar in (("sentence", SENTENCE_MS), ("image", IMAGE_MS)):
        (wall, cpu), (_, bare) = times[kind], times[f"bare {kind}"]
        reference = (
            f"bare sessions {bare:.3g} ms; wall time {wall:.3g} ms at load {os.getloadavg()[0]:.1f}"
        )
        report.add(
            f"{run.name}: CPU time of one {kind}, without torch",
            cpu,
            "ms",
            at_most=bar,
            reference=reference,
        )
    for kind, torch_recall, recall in zip(("caption", "image"), expected, found, strict=True):
        values = f"torch {torch_recall:.2f}, without torch {recall:.2f}"
        name = f"{run.name}: {kind} retrieval R@1, difference from torch"
        report.add(name, abs(recall - torch_recall), "points", at_most=RECALL, reference=values)


def serve_in_new_process(
    onnx: Path, texts: Sequence[str], files: Sequence[str]
) -> dict[str, NDArray[Any]]:
    """Return what ``serve`` writes; this process has imported torch."""
    with TemporaryDirectory() as folder:
        request, output = Path(folder, "request.json"), Path(folder, "served.npz")
        request.write_text(json.dumps([str(onnx), list(texts), list(files), str(output)]))
        subprocess.run(
            [sys.executable, "-m", "benchmarks.speed.serving", "--serve", str(request)], check=True
        )
        with np.load(output) as arrays:
            return dict(arrays)


def main() -> None:
    """Report latency and recall of a served model."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--run", type=Path, default=Path("runs/flickr8k/best"), help="folder of a finished run"
    )
    parser.add_argument("--images", type=int, default=1000, help="images of the split val, at most")
    parser.add_argument(
        "--serve", type=Path, help="only embed the texts and images that this file names"
    )
    arguments = parser.parse_args()
    if arguments.serve:
        onnx, texts, files, output = json.loads(arguments.serve.read_text())
        serve(Path(onnx), texts, files, Path(output))
        return
    report = Report("speed.serving")
    measure(report, arguments.run, arguments.images)
    report.write()


if __name__ == "__main__":
    main()
