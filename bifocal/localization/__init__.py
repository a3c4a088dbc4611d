"""Localizers, one per file: find a text in an image. The papers' equations are functions beside them."""

from bifocal.localization.attention import attend, phrase_heatmap, sentence_heatmap
from bifocal.localization.auto import AutoLocalizer
from bifocal.localization.base import region_scores
from bifocal.localization.bean import BEANHeatmap, bean_heatmaps, class_activation_maps
from bifocal.localization.grad_cam import pair_heatmaps
from bifocal.localization.multi_level import MultiLevelHeatmap
from bifocal.localization.peak_points import peak_points
from bifocal.localization.per_region import PerRegionLocalizer
from bifocal.localization.phrases import find_phrase
from bifocal.localization.rasterize import rasterize
from bifocal.localization.smile import SMILERegions
from bifocal.localization.smoothed import SmoothedActivations
