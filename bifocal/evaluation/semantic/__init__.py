"""Similarity of images in meaning: against captions, people and added words."""
