"""Search in a collection of images by text, by image, and by image with words added or subtracted."""

from typing import TYPE_CHECKING

from bifocal.lazy import lazy_attributes

if TYPE_CHECKING:
    from bifocal.search.explanation import Heatmaps
    from bifocal.search.grounding import GroundingSearch
    from bifocal.search.index import Index, SearchHit
    from bifocal.search.queries import Search
else:
    _MODULES = {
        "GroundingSearch": "grounding",
        "Heatmaps": "explanation",
        "Index": "index",
        "Search": "queries",
        "SearchHit": "index",
    }
    __getattr__ = lazy_attributes(__name__, {name: f"{__name__}.{module}" for name, module in _MODULES.items()})
