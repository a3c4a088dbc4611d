"""Sorters, one per file: scores (..., n) -> ranks (..., n), 0 = best."""

from bifocal.sorters.cnn import CNNSorter
from bifocal.sorters.exact import ExactRankSorter
from bifocal.sorters.lstm_large import LSTMLargeSorter
from bifocal.sorters.pairwise import PairwiseSorter
from bifocal.sorters.positionwise_lstm import PositionwiseLSTMSorter
from bifocal.sorters.published_cnn import PublishedCNNSorter
from bifocal.sorters.ranks import exact_ranks
from bifocal.sorters.serialization import load_sorter, save_sorter
