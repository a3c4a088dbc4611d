"""Sorters: scores (..., n) -> ranks (..., n), 0 = best."""

from bifocal.sorters.convolutional import CNNSorter, PublishedCNNSorter
from bifocal.sorters.exact import ExactRankSorter
from bifocal.sorters.pairwise import PairwiseSorter
from bifocal.sorters.ranks import exact_ranks
from bifocal.sorters.recurrent import LSTMLargeSorter, PositionwiseLSTMSorter
from bifocal.sorters.serialization import load_sorter, save_sorter
