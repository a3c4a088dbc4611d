"""Exports of a collection to other tools: files that their documented import reads, one format per module."""

from bifocal.search.exports.base import FORMATS, export_collection
