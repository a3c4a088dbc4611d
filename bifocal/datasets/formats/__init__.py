"""Published file formats that are not specific to one corpus."""
