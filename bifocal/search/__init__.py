"""Search: a collection is embedded once, and answers texts, images, and images with words added or taken away."""

from bifocal.search.explanation import Heatmaps
from bifocal.search.grounding import GroundingSearch
from bifocal.search.index import Index, SearchHit
from bifocal.search.query import Search
