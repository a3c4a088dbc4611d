"""Published file formats that several corpora share."""
