"""Search in a collection of images by text, by image, and by image with words added or
subtracted."""

from typing import TYPE_CHECKING

from bifocal.registry import lazy_attributes

if TYPE_CHECKING:
    from bifocal.search.index.index import SearchIndex
    from bifocal.search.query import Results, SearchHit
    from bifocal.search.search import Search
    from bifocal.search.torch_search import GroundingSearch, Heatmaps, TorchEmbedder
else:
    _MODULES = {
        "GroundingSearch": "torch_search",
        "Heatmaps": "torch_search",
        "Results": "query",
        "Search": "search",
        "SearchHit": "query",
        "SearchIndex": "index.index",
        "TorchEmbedder": "torch_search",
    }
    __getattr__ = lazy_attributes(
        __name__, {name: f"{__name__}.{module}" for name, module in _MODULES.items()}
    )
