"""From embedding to heatmap or region: one localizer per file, and the papers' formulas as functions."""

from bifocal.localization.alone import RegionsAlone
from bifocal.localization.base import Located as Located
from bifocal.localization.base import points, region_scores
from bifocal.localization.bean import BeanHeatmap, bean_heatmaps, class_activation_maps
from bifocal.localization.grad_cam import last_activations, pair_heatmaps
from bifocal.localization.multi_level import MultiLevelHeatmap, attend, find_phrase, phrase_heatmap, sentence_heatmap
from bifocal.localization.own import OwnLocalizer
from bifocal.localization.smile import SmileRegions, dense_map

__all__ = [
    "BeanHeatmap",
    "MultiLevelHeatmap",
    "OwnLocalizer",
    "RegionsAlone",
    "SmileRegions",
    "attend",
    "bean_heatmaps",
    "class_activation_maps",
    "dense_map",
    "find_phrase",
    "last_activations",
    "pair_heatmaps",
    "phrase_heatmap",
    "points",
    "region_scores",
    "sentence_heatmap",
]
