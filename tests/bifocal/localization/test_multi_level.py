"""Words of a phrase in its sentence."""

import torch
from torch.nn.functional import normalize

from bifocal.image_encoders import MultiLevelEncoder
from bifocal.localization import MultiLevelHeatmap, phrase_heatmap, sentence_heatmap
from tests.bifocal.localization.inputs import draw_float32, regions


def test_multi_level_heatmap_uses_words_of_phrase_in_sentence() -> None:
    encoder = MultiLevelEncoder(3, 6, levels=1).eval()
    texts, words = normalize(draw_float32(1, 2, 6), dim=1), normalize(draw_float32(2, 3, 6), dim=1)
    with torch.inference_mode():
        cells = MultiLevelHeatmap().encode(encoder, regions())
        located = MultiLevelHeatmap().score(cells, texts, [words, None])
        torch.testing.assert_close(located.scores[0], phrase_heatmap(words, cells.vectors[0]))
        torch.testing.assert_close(located.scores[1], sentence_heatmap(texts[1], cells.vectors[1]))
