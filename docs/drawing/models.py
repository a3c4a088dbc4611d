"""The six models as drawings: what is frozen, what is trained, what the loss compares."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType

from docs.drawing.svg import Arrow, Box, drawing


def flow_drawing(title: str, boxes: Sequence[Box], flows: Sequence[str]) -> str:
    """Return the SVG of boxes and of the flows between them.

    Args:
        boxes: each has another first line, which is its name.
        flows: names with an arrow between each two, such as "image > detector > G".
    """
    named = {box.text.split("\n")[0]: box for box in boxes}
    pairs = dict.fromkeys(pair for flow in flows for pair in pairwise(flow.split(" > ")))
    return drawing(title, named, [Arrow(start, end) for start, end in pairs])


def recurrent_sentence(row: float, unit: str) -> list[Box]:
    """Return the sentence of SMILE and BEAN; ``unit`` is the text of the recurrent network."""
    return [
        Box(0, row, "sentence", "data"),
        Box(1, row, "word vectors\nskip-thoughts", "frozen"),
        Box(2, row, unit, "trained"),
    ]


SMILE = flow_drawing(
    "SMILE: regions, attention per channel and region, cosine with the sentence",
    [
        Box(0, 0.5, "image", "data"),
        Box(1, 0.5, "detector\nR regions x D", "frozen"),
        Box(2, 0.5, "regions G\n1 x 1 conv., norm (3.6)", "trained"),
        Box(3, 0, "attention A\n1 x 1 conv., softmax (3.8)", "trained"),
        Box(4, 0.5, "weighted sum\nx = (A o G) 1"),
        *recurrent_sentence(1.75, "SRU\nlast output: z"),
        Box(5, 1.1, "cosine <x, z>\nhardest negatives", "loss"),
        Box(4, 2.6, "heatmap\n<z, G[:, r]> (4.3)"),
    ],
    [
        "image > detector > regions G > attention A > weighted sum > cosine <x, z>",
        "regions G > weighted sum",
        "sentence > word vectors > SRU > cosine <x, z>",
        "SRU > heatmap",
    ],
)
BEAN = flow_drawing(
    "BEAN: maps of a convolutional network, max + min pooling, cosine with the sentence",
    [
        Box(0, 0, "image", "data"),
        Box(1, 0, "ResNet-152\nfully convolutional", "trained"),
        Box(2, 0, "1 x 1 adaptation\nD' maps: G (1)", "trained"),
        Box(3, 0, "max + min\nper map: h (2)"),
        Box(4, 0, "projection\nx, unit norm (3)", "trained"),
        *recurrent_sentence(1.3, "SRU, four layers\nz (4)"),
        Box(5, 0.65, "cosine <x, z>\nhardest negatives", "loss"),
        Box(4, 2.3, "heatmap (8), (9)\nk largest |z|"),
    ],
    [
        "image > ResNet-152 > 1 x 1 adaptation > max + min > projection > cosine <x, z>",
        "sentence > word vectors > SRU, four layers > cosine <x, z>",
        "SRU, four layers > heatmap (8), (9)",
    ],
)
SODEEP = flow_drawing(
    "SoDeep: a sorter makes ranks differentiable, so a metric of ranks is the loss",
    [
        Box(0, 0, "synthetic scores", "data"),
        Box(1, 0, "sorter\npredicts ranks", "trained"),
        Box(2, 0, "L1 to true ranks\n(5.1)", "loss"),
        Box(0, 1.3, "batch", "data"),
        Box(1, 1.3, "model\nscores", "trained"),
        Box(2, 1.3, "sorter, frozen\nscores -> ranks", "frozen"),
        Box(3, 1.3, "metric of the ranks\nrecall, rho, mAP", "loss"),
    ],
    [
        "synthetic scores > sorter > L1 to true ranks",
        "batch > model > sorter, frozen > metric of the ranks",
        "sorter > sorter, frozen",
    ],
)
MULTI_LEVEL = flow_drawing(
    "Multi-level grounding: words attend to the cells of several levels",
    [
        Box(0, 0, "image", "data"),
        Box(1, 0, "VGG or PNASNet\nlayers of L levels", "frozen"),
        Box(2, 0, "three 1 x 1 conv.\nper level, unit norm", "trained"),
        Box(0, 1.4, "sentence", "data"),
        Box(1, 1.4, "ELMo\nthree layers", "frozen"),
        Box(2, 1.4, "mixture, two layers\nwords, sentence", "trained"),
        Box(3, 0.7, "attention\nto cells (1)-(3)"),
        Box(4, 0.7, "best level\npertinence (4)"),
        Box(5, 0.7, "R_w + R_s\nposteriors (7)-(10)", "loss"),
        Box(4, 1.9, "heatmap\nof the best level"),
    ],
    [
        "image > VGG or PNASNet > three 1 x 1 conv. > attention > best level > R_w + R_s",
        "sentence > ELMo > mixture, two layers > attention",
        "best level > heatmap",
    ],
)
STRUCTURE_PRESERVING = flow_drawing(
    "Structure-preserving embeddings: ranking across and within the views",
    [
        Box(0, 0, "image or box", "data"),
        Box(1, 0, "VGG-19\nten crops", "frozen"),
        Box(2, 0, "image branch\ntwo layers, ReLU, norm, l2", "trained"),
        Box(3.3, 0, "structure of images\n(3)", "loss"),
        Box(0, 1.8, "caption or phrase", "data"),
        Box(1, 1.8, "Fisher vector\nor tf-idf, or mean", "frozen"),
        Box(2, 1.8, "text branch\ntwo layers, ReLU, norm, l2", "trained"),
        Box(3.3, 1.8, "structure of texts\n(4)", "loss"),
        Box(3.3, 0.9, "both directions\n(1), (2)", "loss"),
    ],
    [
        "image or box > VGG-19 > image branch > structure of images",
        "caption or phrase > Fisher vector > text branch > structure of texts",
        "image branch > both directions",
        "text branch > both directions",
    ],
)
SEMANTIC = flow_drawing(
    "Semantic retrieval: captions say which images are relevant to each other",
    [
        Box(0, 0, "query, relevant,\nirrelevant image", "data"),
        Box(1, 0, "ResNet-101, R-MAC\nregions of two scales", "trained"),
        Box(2, 0, "whitening\nd, unit norm", "trained"),
        Box(0, 1.4, "captions of\neach image", "data"),
        Box(1, 1.4, "tf-idf\nof all words", "frozen"),
        Box(2, 1.4, "linear map W\nunit norm", "trained"),
        Box(3.3, 0, "visual loss\n(1)", "loss"),
        Box(3.3, 1.4, "joint losses\n(2), (3)", "loss"),
        Box(1, 2.6, "mining\nwhich is relevant?"),
    ],
    [
        "query, relevant, > ResNet-101, R-MAC > whitening > visual loss",
        "captions of > tf-idf > linear map W > joint losses",
        "whitening > joint losses",
        "tf-idf > mining",
    ],
)
MODELS: Mapping[str, str] = MappingProxyType(
    {
        "bean": BEAN,
        "multi_level": MULTI_LEVEL,
        "semantic": SEMANTIC,
        "smile": SMILE,
        "sodeep": SODEEP,
        "structure_preserving": STRUCTURE_PRESERVING,
    }
)
"""The drawing of each model, by the name of its file."""
