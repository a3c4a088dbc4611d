"""Localizers, one per file: find a text in an image. The papers' equations are functions beside
them."""

from bifocal.localization.attention import attend, find_phrase, phrase_heatmap, sentence_heatmap
from bifocal.localization.base import AutoLocalizer, region_scores
from bifocal.localization.bean import BEANHeatmap, bean_heatmaps, class_activation_maps
from bifocal.localization.grad_cam import pair_heatmaps
from bifocal.localization.heatmaps import peak_points, rasterize
from bifocal.localization.multi_level import MultiLevelHeatmap
from bifocal.localization.per_region import PerRegionLocalizer
from bifocal.localization.smile import SMILERegions
from bifocal.localization.smoothed import SmoothedActivations
