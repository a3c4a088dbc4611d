"""Converters of published files that hold pickles, into formats that hold data alone."""
