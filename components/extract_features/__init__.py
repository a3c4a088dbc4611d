"""Stage ``extract_features``: computes features of images and writes them to a store."""
