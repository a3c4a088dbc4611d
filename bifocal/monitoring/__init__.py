"""Drift of the queries and images of a model in production, against its training data. Needs no torch."""

from bifocal.monitoring.discrepancy import Discrepancy, discrepancy_test
from bifocal.monitoring.drift import TESTS, Finding, SampleSizes, Thresholds, compare
from bifocal.monitoring.monitor import Artifacts, Monitor
from bifocal.monitoring.observations import Observations
from bifocal.monitoring.probes import Probes, read_pairs
from bifocal.monitoring.queries import read_queries
from bifocal.monitoring.reference import Reference
from bifocal.monitoring.significance import Count
from bifocal.monitoring.week import Week
