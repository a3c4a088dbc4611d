"""A small contrastive model of random weights."""

SMALL = {
    "embed_dim": 12,
    "vision_cfg": {"image_size": 32, "patch_size": 8, "width": 16, "layers": 2, "head_width": 8},
    "text_cfg": {"context_length": 16, "width": 16, "heads": 2, "layers": 1},
}
"""Arguments of open_clip's model."""
