"""Index of a collection: exact search in blocks, or approximate search with faiss."""

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
"""Images per matrix product of the exact search."""


@dataclass(frozen=True)
class SearchHit:
    """One result.

    Attributes:
        image_id: id of the image.
        score: cosine with the query; R_w + R_s of a ``GroundingModel``.
        explanation: result of ``explain``, such as a heatmap of ``Heatmaps``; None without ``explain``.
    """

    image_id: str
    score: float
    explanation: Any = None


class NearestNeighbors(Protocol):
    """A faiss index."""

    def search(self, queries: Any, k: int) -> tuple[Any, Any]:
        """Return scores (Q, k) and rows (Q, k); a row is -1 if there are fewer results."""
        ...


@dataclass
class Index:
    """Embeddings of a collection of images.

    Args:
        image_ids: ids of the N images.
        embeddings: (N, d), of unit norm.
        approximate: index of faiss over the embeddings, see ``build_approximate``; None for exact search.
        bias: (N,), added to the scores of sentences, see ``bifocal.hubness``; None for no correction.

    Raises:
        ValueError: the numbers of ids, embeddings and biases differ, an id occurs twice, or an embedding is not finite.

    Example:
        >>> index = Index(["sea", "wood"], torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
        >>> [hit.image_id for hit in index.nearest(torch.tensor([0.6, 0.8]), k=2)]
        ['wood', 'sea']
    """

    image_ids: Sequence[str]
    embeddings: Tensor
    approximate: NearestNeighbors | None = field(default=None, repr=False)
    bias: Tensor | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        self._row = {image_id: row for row, image_id in enumerate(self.image_ids)}
        if len(self.image_ids) != len(self.embeddings) or len(self._row) != len(self.image_ids):
            raise ValueError(
                f"{len(self.image_ids)} ids, {len(self._row)} of them different, and {len(self.embeddings)} "
                "embeddings: give each embedding its own id"
            )
        if self.bias is not None and self.bias.shape != (len(self),):
            raise ValueError(f"bias {tuple(self.bias.shape)}, expected ({len(self)},): one number per image")
        if not torch.isfinite(self.embeddings).all():
            raise ValueError("an embedding is not finite")

    def __len__(self) -> int:
        """Return N, the number of images."""
        return len(self.image_ids)

    def embedding(self, image_id: str) -> Tensor:
        """Return the embedding (d,) of an image of the index.

        Raises:
            ValueError: the index does not have the image.
        """
        if image_id not in self._row:
            raise ValueError(f"the index has no image {image_id!r} among its {len(self)}; search with its embedding")
        return self.embeddings[self._row[image_id]]

    def nearest(
        self,
        query: Tensor,
        k: int,
        *,
        exclude: str | None = None,
        explain: Callable[[str], Any] | None = None,
        corrected: bool = False,
    ) -> list[SearchHit]:
        """Return the ``k`` images of the highest cosine with ``query`` (d,), best first.

        Images with equal scores keep the order of the index.

        Args:
            exclude: id of an image to leave out of the results, such as the query image.
            explain: computes the ``explanation`` of a result from its image_id.
            corrected: order by the cosine plus the bias of each image, if the index has biases. They are meant for
                sentences as queries.

        Raises:
            ValueError: the query has another dimension, or is zero.
        """
        if query.shape != self.embeddings.shape[1:] or not float(query.norm()) > 0:
            raise ValueError(
                f"query {tuple(query.shape)}, expected a vector {tuple(self.embeddings.shape[1:])} that is not zero"
            )
        query = normalize(query.detach().to(self.embeddings), dim=0)
        count = min(len(self), k + (exclude is not None))
        search = self._exact if self.approximate is None else self._approximate
        bias = torch.zeros(len(self)) if self.bias is None or not corrected else self.bias
        scores, rows = search(query, count, bias)
        scores = scores - bias[rows]
        results = [
            (self.image_ids[row], score) for row, score in zip(rows.tolist(), scores.tolist(), strict=True) if row >= 0
        ]
        kept = [(image_id, score) for image_id, score in results if image_id != exclude][:k]
        return [SearchHit(image_id, score, explain(image_id) if explain else None) for image_id, score in kept]

    def build_approximate(self, n_lists: int | None = None, n_probes: int = 16) -> None:
        """Search with an inverted file of faiss from now on: faster for millions of images, but not exact.

        Args:
            n_lists: lists of the inverted file; None for about 4 sqrt(N).
            n_probes: lists that a query searches.

        Raises:
            ImportError: faiss is not installed.
        """
        faiss = _faiss()
        dim = self.embeddings.shape[1] + (self.bias is not None)
        lists = max(1, min(len(self) // 39, int(4 * len(self) ** 0.5)) if n_lists is None else n_lists)
        inverted = faiss.IndexIVFFlat(faiss.IndexFlatIP(dim), dim, lists, faiss.METRIC_INNER_PRODUCT)
        vectors = self.embeddings.numpy()
        if self.bias is not None:  # the inner product with (query, 1) is the corrected score
            vectors = torch.cat([self.embeddings, self.bias.unsqueeze(1).to(self.embeddings)], dim=1).numpy()
        inverted.train(vectors)
        inverted.add(vectors)
        inverted.nprobe = n_probes
        self.approximate = inverted

    def save(self, directory: Path) -> None:
        """Write ``index.safetensors``, ``index.json`` and, if it was built, the index of faiss."""
        biases = {} if self.bias is None else {"bias": self.bias.contiguous()}
        save_file({"embeddings": self.embeddings.contiguous(), **biases}, directory / INDEX)
        (directory / NAMES).write_text(json.dumps(list(self.image_ids), ensure_ascii=False) + "\n", encoding="utf-8")
        if self.approximate is not None:
            _faiss().write_index(self.approximate, str(directory / APPROXIMATE))

    @classmethod
    def load(cls, directory: Path) -> "Index":
        """Read the index that :meth:`save` wrote.

        Raises:
            FileNotFoundError: the directory holds no index.
        """
        if not (directory / INDEX).is_file():
            raise FileNotFoundError(f"{directory} holds no {INDEX}: save an Index there")
        names = json.loads((directory / NAMES).read_text(encoding="utf-8"))
        tensors = load_file(directory / INDEX)
        index = cls(names, tensors["embeddings"], bias=tensors.get("bias"))
        if (directory / APPROXIMATE).is_file():
            index.approximate = _faiss().read_index(str(directory / APPROXIMATE))
        return index

    def _exact(self, query: Tensor, k: int, bias: Tensor) -> tuple[Tensor, Tensor]:
        scores, rows = query.new_empty(0), torch.empty(0, dtype=torch.int64)
        for start in range(0, len(self), BLOCK):
            block = self.embeddings[start : start + BLOCK] @ query + bias[start : start + BLOCK]
            scores = torch.cat([scores, block])
            rows = torch.cat([rows, torch.arange(start, start + len(block))])
            order = scores.argsort(descending=True, stable=True)[:k]
            scores, rows = scores[order], rows[order]
        return scores, rows

    def _approximate(self, query: Tensor, k: int, bias: Tensor) -> tuple[Tensor, Tensor]:
        assert self.approximate is not None
        if self.bias is not None:  # 0 leaves the biases in the index out
            query = torch.cat([query, query.new_tensor([float(bias.any())])])
        scores, rows = self.approximate.search(query.unsqueeze(0).numpy(), k)
        return torch.from_numpy(scores[0]), torch.from_numpy(rows[0])


def _faiss() -> Any:
    try:
        import faiss
    except ImportError as error:
        raise ImportError("approximate search needs faiss: pip install 'bifocal[search]'") from error
    return faiss
