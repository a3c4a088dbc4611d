"""Stage ``extract_features``: from images to a store of their regions' features."""
