"""Drift of the queries and images of a model in production, against its training data. Needs no
torch."""

from bifocal.monitoring.discrepancy import Discrepancy, discrepancy_test
from bifocal.monitoring.drift import TESTS, DriftTest, SampleSizes, Thresholds, compare
from bifocal.monitoring.monitor import Artifacts, Monitor
from bifocal.monitoring.observations import Count, Observations
from bifocal.monitoring.queries import read_queries
from bifocal.monitoring.reference import Reference
from bifocal.monitoring.week import Week
