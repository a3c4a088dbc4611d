"""An exact index of a collection, and held-out captions as its queries."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bifocal.hubness.bank import HubnessBank
from bifocal.search.collection.collection import Collection
from bifocal.search.index.format import IndexDescription
from bifocal.search.index.index import SearchIndex

if TYPE_CHECKING:
    import pandas as pd

BATCH = 65_536


def index_of_collection(collection: Collection, bank: HubnessBank | None) -> SearchIndex:
    """Return an exact index of a collection, whose tombstones are removed items; ``bank`` gives it biases."""
    description = IndexDescription(
        collection.dimension,
        len(collection),
        collection.model,
        collection.description.preprocessing,
        None if bank is None else bank.reference,
    )
    bias: NDArray[np.float32] | None = None
    if bank is not None:
        biases = [bank.image_bias(vectors) for vectors in collection.vectors.batches(BATCH)]
        bias = np.concatenate([np.zeros(0, dtype=np.float32), *biases])
    return SearchIndex(
        collection.facts, collection.vectors, bias, description, removed=collection.deleted, known=collection.lookup
    )


@dataclass(frozen=True)
class HeldOutCaptions:
    """Captions that were held out of the training of a model, as users would write queries, and their images."""

    texts: list[str]
    item_ids: list[str]

    @classmethod
    def sample(cls, captions: "pd.DataFrame", count: int, max_words: int, seed: int) -> "HeldOutCaptions":
        """Return at most ``count`` random captions of at most ``max_words`` words; of any length if none is short."""
        short = captions[[len(str(text).split()) <= max_words for text in captions["text"]]]
        kept = short if len(short) else captions
        sampled = kept.sample(min(count, len(kept)), random_state=seed)
        return cls(sampled["text"].tolist(), sampled["image_id"].astype(str).tolist())

    def of(self, index: SearchIndex) -> NDArray[np.bool_]:
        """Return for each caption whether the index has its image."""
        known = set(index.ids)
        return np.array([item_id in known for item_id in self.item_ids], dtype=bool)
