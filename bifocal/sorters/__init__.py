"""Sorters, one per file: scores (..., n) -> ranks (..., n), 0 = best."""

from bifocal.sorters.bifocal import BifocalSorter
from bifocal.sorters.cnn import CNNSorter
from bifocal.sorters.laplace import LaplaceSorter
from bifocal.sorters.lstm_large import LSTMLargeSorter
from bifocal.sorters.pairwise import PairwiseSorter
from bifocal.sorters.permutahedron import PermutahedronSorter
from bifocal.sorters.positionwise_lstm import PositionwiseLSTMSorter
from bifocal.sorters.published_cnn import PublishedCNNSorter
from bifocal.sorters.ranks import exact_ranks
from bifocal.sorters.relaxed_permutation import NeuralSorter, SoftSorter
from bifocal.sorters.serialization import load_sorter, save_sorter
