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
    __getattr__ = lazy_attributes(
        __name__,
        {
            "GroundingSearch": "search.torch_search",
            "Heatmaps": "search.torch_search",
            "Results": "search.query",
            "Search": "search.search",
            "SearchHit": "search.query",
            "SearchIndex": "search.index.index",
            "TorchEmbedder": "search.torch_search",
        },
    )
