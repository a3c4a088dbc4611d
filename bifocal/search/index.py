"""The index of a collection: exact search by blocks, or approximate search through faiss."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn.functional import normalize

INDEX, NAMES, APPROXIMATE = "index.safetensors", "index.json", "index.faiss"
BLOCK = 65_536
"""Images that are multiplied at once."""


@dataclass(frozen=True)
class SearchHit:
    """One result.

    Attributes:
        image_id: of the image.
        score: cosine with the query.
        explanation: what ``explain`` gave, such as a heatmap of ``Heatmaps``; None if nothing was asked for.
    """

    image_id: str
    score: float
    explanation: Any = None


class NearestNeighbours(Protocol):
    """A faiss index."""

    def search(self, queries: Any, k: int) -> tuple[Any, Any]:
        """Scores (Q, k) and rows (Q, k), -1 where there are no more."""
        ...


@dataclass
class Index:
    """Embeddings of a collection of images.

    Args:
        image_ids: of the N images.
        embeddings: (N, d), of unit norm.

    Raises:
        ValueError: there are not as many names as embeddings, a name comes twice, or an embedding is not finite.

    Example:
        >>> index = Index(["sea", "wood"], torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
        >>> [found.image_id for found in index.nearest(torch.tensor([0.6, 0.8]), k=2)]
        ['wood', 'sea']
    """

    image_ids: Sequence[str]
    embeddings: Tensor
    approximate: NearestNeighbours | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        self._row = {image_id: row for row, image_id in enumerate(self.image_ids)}
        if len(self.image_ids) != len(self.embeddings) or len(self._row) != len(self.image_ids):
            raise ValueError(
                f"{len(self.image_ids)} names, {len(self._row)} of them different, for {len(self.embeddings)} "
                "embeddings: expected one of its own for each"
            )
        if not torch.isfinite(self.embeddings).all():
            raise ValueError("an embedding is not finite")

    def __len__(self) -> int:
        """N, the number of images."""
        return len(self.image_ids)

    def embedding(self, image_id: str) -> Tensor:
        """(d,) of an image of the collection.

        Raises:
            ValueError: it is not there.
        """
        if image_id not in self._row:
            raise ValueError(f"the index has no image {image_id!r} among its {len(self)}; embed it, and ask by vector")
        return self.embeddings[self._row[image_id]]

    def nearest(
        self, query: Tensor, k: int, *, leave_out: str | None = None, explain: Callable[[str], Any] | None = None
    ) -> list[SearchHit]:
        """The ``k`` images of the highest cosine with ``query`` (d,), best first; equal ones in the index's order.

        Args:
            leave_out: an image that is no result, such as the one that is asked with.
            explain: called with the image_id of each result.

        Raises:
            ValueError: the query has another dimension, or is zero.
        """
        if query.shape != self.embeddings.shape[1:] or not float(query.norm()) > 0:
            raise ValueError(f"a query {tuple(query.shape)}, expected {tuple(self.embeddings.shape[1:])}, not zero")
        query = normalize(query.detach().to(self.embeddings), dim=0)
        wanted = min(len(self), k + (leave_out is not None))
        search = self._exact if self.approximate is None else self._approximate
        scores, rows = search(query, wanted)
        results = [
            (self.image_ids[row], score) for row, score in zip(rows.tolist(), scores.tolist(), strict=True) if row >= 0
        ]
        kept = [(image_id, score) for image_id, score in results if image_id != leave_out][:k]
        return [SearchHit(image_id, score, explain(image_id) if explain else None) for image_id, score in kept]

    def build_approximate(self, cells: int | None = None, probes: int = 16) -> None:
        """From now on search through an inverted file of faiss: faster on millions, and no longer exact.

        Args:
            cells: of the file; about 4 sqrt(N) if not given.
            probes: cells that a query looks into.

        Raises:
            ImportError: faiss is not installed.
        """
        faiss = _faiss()
        dim = self.embeddings.shape[1]
        count = max(1, min(len(self) // 39, int(4 * len(self) ** 0.5)) if cells is None else cells)
        built = faiss.IndexIVFFlat(faiss.IndexFlatIP(dim), dim, count, faiss.METRIC_INNER_PRODUCT)
        vectors = self.embeddings.numpy()
        built.train(vectors)
        built.add(vectors)
        built.nprobe = probes
        self.approximate = built

    def save(self, directory: Path) -> None:
        """Write the index beside a model: ``index.safetensors``, ``index.json``, and faiss's own if it was built."""
        save_file({"embeddings": self.embeddings.contiguous()}, directory / INDEX)
        (directory / NAMES).write_text(json.dumps(list(self.image_ids), ensure_ascii=False) + "\n", encoding="utf-8")
        if self.approximate is not None:
            _faiss().write_index(self.approximate, str(directory / APPROXIMATE))

    @classmethod
    def load(cls, directory: Path) -> "Index":
        """What :meth:`save` wrote.

        Raises:
            FileNotFoundError: the directory holds no index.
        """
        if not (directory / INDEX).is_file():
            raise FileNotFoundError(f"{directory} holds no {INDEX}: make an Index, and save it there")
        names = json.loads((directory / NAMES).read_text(encoding="utf-8"))
        index = cls(names, load_file(directory / INDEX)["embeddings"])
        if (directory / APPROXIMATE).is_file():
            index.approximate = _faiss().read_index(str(directory / APPROXIMATE))
        return index

    def _exact(self, query: Tensor, k: int) -> tuple[Tensor, Tensor]:
        scores, rows = query.new_empty(0), torch.empty(0, dtype=torch.int64)
        for start in range(0, len(self), BLOCK):
            block = self.embeddings[start : start + BLOCK] @ query
            scores = torch.cat([scores, block])
            rows = torch.cat([rows, torch.arange(start, start + len(block))])
            order = scores.argsort(descending=True, stable=True)[:k]
            scores, rows = scores[order], rows[order]
        return scores, rows

    def _approximate(self, query: Tensor, k: int) -> tuple[Tensor, Tensor]:
        assert self.approximate is not None
        scores, rows = self.approximate.search(query.unsqueeze(0).numpy(), k)
        return torch.from_numpy(scores[0]), torch.from_numpy(rows[0])


def _faiss() -> Any:
    try:
        import faiss
    except ImportError as error:
        raise ImportError("approximate search needs faiss: pip install 'bifocal[search]'") from error
    return faiss
