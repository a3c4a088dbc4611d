"""Collections: ids, metadata and vectors of many images by one exported model."""
