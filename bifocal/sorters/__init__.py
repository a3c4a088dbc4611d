"""Sorters, one per file: scores (..., n) -> ranks (..., n), 0 = best."""

from bifocal.sorters.adversary import play_adversary
from bifocal.sorters.bifocal import BifocalSorter
from bifocal.sorters.cnn import CNNSorter
from bifocal.sorters.laplace import LaplaceSorter
from bifocal.sorters.lstm import LSTMSorter
from bifocal.sorters.pairwise import PairwiseSorter
from bifocal.sorters.permutahedron import PermutahedronSorter
from bifocal.sorters.pretraining import held_out_scores, pretrain, rank_l1
from bifocal.sorters.ranks import exact_ranks
from bifocal.sorters.relaxed_permutation import NeuralSorter, SoftSorter
from bifocal.sorters.storage import build_sorter, load_sorter, save_sorter
from bifocal.sorters.synthetic import synthetic_scores

__all__ = [
    "BifocalSorter",
    "CNNSorter",
    "LSTMSorter",
    "LaplaceSorter",
    "NeuralSorter",
    "PairwiseSorter",
    "PermutahedronSorter",
    "SoftSorter",
    "build_sorter",
    "exact_ranks",
    "held_out_scores",
    "load_sorter",
    "play_adversary",
    "pretrain",
    "rank_l1",
    "save_sorter",
    "synthetic_scores",
]
