"""Inspection of a dataset before anything is trained: what is in it, and what is wrong with it."""

from bifocal.inspection.checks import Finding, Inspection, inspect_dataset
from bifocal.inspection.page import inspection_page
