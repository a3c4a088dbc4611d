"""Sorters, one per file: scores (..., n) -> ranks (..., n), 0 = best."""

from bifocal.sorters.bifocal import BifocalSorter
from bifocal.sorters.cnn import CNNSorter
from bifocal.sorters.laplace import LaplaceSorter
from bifocal.sorters.lstm import LSTMSorter
from bifocal.sorters.pairwise import PairwiseSorter
from bifocal.sorters.permutahedron import PermutahedronSorter
from bifocal.sorters.ranks import exact_ranks
from bifocal.sorters.relaxed_permutation import NeuralSorter, SoftSorter
from bifocal.sorters.serialization import load_sorter, save_sorter
