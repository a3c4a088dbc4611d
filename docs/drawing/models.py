"""The six models as drawings: what is frozen, what is trained, what the loss compares."""

from collections.abc import Mapping
from types import MappingProxyType

from docs.drawing.svg import Arrow, Box, drawing


def smile() -> str:
    """Return the drawing of SMILE."""
    boxes = {
        "image": Box(0, 0.5, "image", "data"),
        "regions": Box(1, 0.5, "detector\nR regions x D", "frozen"),
        "g": Box(2, 0.5, "1 x 1 convolution\nG, unit norm (3.6)", "trained"),
        "a": Box(3, 0, "1 x 1 convolution\nsoftmax: A (3.8)", "trained"),
        "x": Box(4, 0.5, "weighted sum\nx = (A o G) 1"),
        "sentence": Box(0, 1.75, "sentence", "data"),
        "words": Box(1, 1.75, "word vectors\nskip-thoughts", "frozen"),
        "sru": Box(2, 1.75, "SRU\nlast output: z", "trained"),
        "cosine": Box(5, 1.1, "cosine <x, z>\nhardest negatives", "loss"),
        "heatmap": Box(4, 2.6, "heatmap\n<z, G[:, r]> (4.3)"),
    }
    arrows = [
        Arrow("image", "regions"), Arrow("regions", "g"), Arrow("g", "a"), Arrow("g", "x"), Arrow("a", "x"),
        Arrow("sentence", "words"), Arrow("words", "sru"), Arrow("x", "cosine"), Arrow("sru", "cosine"),
        Arrow("sru", "heatmap"),
    ]  # fmt: skip
    return drawing("SMILE: regions, attention per channel and region, cosine with the sentence", boxes, arrows)


def bean() -> str:
    """Return the drawing of BEAN."""
    boxes = {
        "image": Box(0, 0, "image", "data"),
        "network": Box(1, 0, "ResNet-152\nfully convolutional", "trained"),
        "maps": Box(2, 0, "1 x 1 adaptation\nD' maps: G (1)", "trained"),
        "pool": Box(3, 0, "max + min\nper map: h (2)"),
        "x": Box(4, 0, "projection\nx, unit norm (3)", "trained"),
        "sentence": Box(0, 1.3, "sentence", "data"),
        "words": Box(1, 1.3, "word vectors\nskip-thoughts", "frozen"),
        "sru": Box(2, 1.3, "SRU, four layers\nz (4)", "trained"),
        "cosine": Box(5, 0.65, "cosine <x, z>\nhardest negatives", "loss"),
        "heatmap": Box(4, 2.3, "heatmap (8), (9)\nk largest |z|"),
    }
    arrows = [
        Arrow("image", "network"), Arrow("network", "maps"), Arrow("maps", "pool"), Arrow("pool", "x"),
        Arrow("sentence", "words"), Arrow("words", "sru"), Arrow("x", "cosine"), Arrow("sru", "cosine"),
        Arrow("sru", "heatmap"),
    ]  # fmt: skip
    return drawing("BEAN: maps of a convolutional network, max + min pooling, cosine with the sentence", boxes, arrows)


def sodeep() -> str:
    """Return the drawing of SoDeep."""
    boxes = {
        "synthetic": Box(0, 0, "synthetic scores", "data"),
        "train": Box(1, 0, "sorter\npredicts ranks", "trained"),
        "l1": Box(2, 0, "L1 to true ranks\n(5.1)", "loss"),
        "batch": Box(0, 1.3, "batch", "data"),
        "model": Box(1, 1.3, "model\nscores", "trained"),
        "sorter": Box(2, 1.3, "sorter, frozen\nscores -> ranks", "frozen"),
        "metric": Box(3, 1.3, "metric of the ranks\nrecall, rho, mAP", "loss"),
    }
    arrows = [
        Arrow("synthetic", "train"), Arrow("train", "l1"), Arrow("batch", "model"), Arrow("model", "sorter"),
        Arrow("sorter", "metric"), Arrow("train", "sorter"),
    ]  # fmt: skip
    return drawing("SoDeep: a sorter makes ranks differentiable, so a metric of ranks is the loss", boxes, arrows)


def multi_level() -> str:
    """Return the drawing of multi-level grounding."""
    boxes = {
        "image": Box(0, 0, "image", "data"),
        "network": Box(1, 0, "VGG or PNASNet\nlayers of L levels", "frozen"),
        "cells": Box(2, 0, "three 1 x 1 conv.\nper level, unit norm", "trained"),
        "sentence": Box(0, 1.4, "sentence", "data"),
        "elmo": Box(1, 1.4, "ELMo\nthree layers", "frozen"),
        "text": Box(2, 1.4, "mixture, two layers\nwords, sentence", "trained"),
        "attention": Box(3, 0.7, "attention\nto cells (1)-(3)"),
        "level": Box(4, 0.7, "best level\npertinence (4)"),
        "score": Box(5, 0.7, "R_w + R_s\nposteriors (7)-(10)", "loss"),
        "heatmap": Box(4, 1.9, "heatmap\nof the best level"),
    }
    arrows = [
        Arrow("image", "network"), Arrow("network", "cells"), Arrow("sentence", "elmo"), Arrow("elmo", "text"),
        Arrow("cells", "attention"), Arrow("text", "attention"), Arrow("attention", "level"), Arrow("level", "score"),
        Arrow("level", "heatmap"),
    ]  # fmt: skip
    return drawing("Multi-level grounding: words attend to the cells of several levels", boxes, arrows)


def structure_preserving() -> str:
    """Return the drawing of structure-preserving embeddings."""
    boxes = {
        "image": Box(0, 0, "image or box", "data"),
        "vgg": Box(1, 0, "VGG-19\nten crops", "frozen"),
        "x": Box(2, 0, "two layers\nReLU, norm, l2", "trained"),
        "visual": Box(3.3, 0, "structure of images\n(3)", "loss"),
        "sentence": Box(0, 1.8, "caption or phrase", "data"),
        "fisher": Box(1, 1.8, "Fisher vector\nor tf-idf, or mean", "frozen"),
        "z": Box(2, 1.8, "two layers\nReLU, norm, l2", "trained"),
        "textual": Box(3.3, 1.8, "structure of texts\n(4)", "loss"),
        "cross": Box(3.3, 0.9, "both directions\n(1), (2)", "loss"),
    }
    arrows = [
        Arrow("image", "vgg"), Arrow("vgg", "x"), Arrow("sentence", "fisher"), Arrow("fisher", "z"),
        Arrow("x", "visual"), Arrow("z", "textual"), Arrow("x", "cross"), Arrow("z", "cross"),
    ]  # fmt: skip
    return drawing("Structure-preserving embeddings: ranking across and within the views", boxes, arrows)


def semantic() -> str:
    """Return the drawing of semantic retrieval."""
    boxes = {
        "query": Box(0, 0, "query, relevant,\nirrelevant image", "data"),
        "rmac": Box(1, 0, "ResNet-101, R-MAC\nregions of two scales", "trained"),
        "white": Box(2, 0, "whitening\nd, unit norm", "trained"),
        "texts": Box(0, 1.4, "captions of\neach image", "data"),
        "tfidf": Box(1, 1.4, "tf-idf\nof all words", "frozen"),
        "theta": Box(2, 1.4, "linear map W\nunit norm", "trained"),
        "visual": Box(3.3, 0, "visual loss\n(1)", "loss"),
        "joint": Box(3.3, 1.4, "joint losses\n(2), (3)", "loss"),
        "mine": Box(1, 2.6, "mining\nwhich is relevant?"),
    }
    arrows = [
        Arrow("query", "rmac"), Arrow("rmac", "white"), Arrow("texts", "tfidf"), Arrow("tfidf", "theta"),
        Arrow("white", "visual"), Arrow("white", "joint"), Arrow("theta", "joint"), Arrow("tfidf", "mine"),
    ]  # fmt: skip
    return drawing("Semantic retrieval: captions say which images are relevant to each other", boxes, arrows)


MODELS: Mapping[str, str] = MappingProxyType(
    {
        "bean": bean(),
        "multi_level": multi_level(),
        "semantic": semantic(),
        "smile": smile(),
        "sodeep": sodeep(),
        "structure_preserving": structure_preserving(),
    }
)
"""The drawing of each model, by the name of its file."""
