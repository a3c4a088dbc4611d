"""From embedding to heatmap or region: one localizer per file, and the papers' formulas as functions."""

from bifocal.localization.auto import AutoLocalizer
from bifocal.localization.base import RegionScores, points, region_scores
from bifocal.localization.bean import BEANHeatmap, bean_heatmaps, class_activation_maps
from bifocal.localization.grad_cam import last_activations, pair_heatmaps
from bifocal.localization.multi_level import MultiLevelHeatmap, attend, find_phrase, phrase_heatmap, sentence_heatmap
from bifocal.localization.per_region import PerRegionLocalizer
from bifocal.localization.smile import SMILERegions, rasterize
