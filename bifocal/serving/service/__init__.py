"""HTTP service of a model and an index: search, heatmaps, thumbnails and a page. Needs no torch;
extra ``serve``."""
