"""Converters of published pickle files into formats that hold only data."""
