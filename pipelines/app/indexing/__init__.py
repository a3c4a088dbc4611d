"""``bifocal index``: encoders by name, and the collection and index of a folder of images."""
