"""Search in a collection of images by text, by image, and by image with words added or subtracted."""

from typing import TYPE_CHECKING

from bifocal.registry import lazy_attributes

if TYPE_CHECKING:
    from bifocal.search.explanation import Heatmaps
    from bifocal.search.grounding import GroundingSearch
    from bifocal.search.index import SearchHit, SearchIndex
    from bifocal.search.queries import Searcher
    from bifocal.search.torch_embedder import TorchEmbedder
else:
    _MODULES = {
        "GroundingSearch": "grounding",
        "Heatmaps": "explanation",
        "SearchHit": "index",
        "SearchIndex": "index",
        "Searcher": "queries",
        "TorchEmbedder": "torch_embedder",
    }
    __getattr__ = lazy_attributes(__name__, {name: f"{__name__}.{module}" for name, module in _MODULES.items()})
