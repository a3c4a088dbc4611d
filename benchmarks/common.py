"""Results of benchmarks: printed with their bars and verdicts, and written to
``benchmarks/results/*.json``."""

import json
import os
import platform
import re
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import date
from functools import cache
from hashlib import sha256
from pathlib import Path

from benchmarks.measures import measure_hash
from bifocal.version import __version__

ROOT = Path(__file__).parents[1]
VECTORS = re.compile("(sse4|avx|amx|asimd|sve)")
RESULTS = Path(__file__).with_name("results")


def measured() -> str:
    """Return a sentence with the version and the day of a measurement that ends now."""
    return f"Measured with version {__version__} on {date.today().isoformat()}."


@cache
def processor() -> str:
    """Return the name of the processor and its vector instructions, as Linux names them."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    facts = {
        name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)
    }
    flags = facts.get("flags", facts.get("Features", "")).split()
    vectors = sorted(flag for flag in flags if VECTORS.match(flag))
    return f"{facts.get('model name', platform.machine())}: {' '.join(vectors)}"


@dataclass(frozen=True)
class Result:
    """One measured value.

    Attributes:
        bar: required value; None if the value is only reported.
        at_most: whether the bar is an upper limit.
        reference: floor or peer of the same run.
        date: day of the measurement, ISO 8601.
        measure: hash of the metrics that gave the value, see ``benchmarks.measures``; "" if it was
            not recorded.
        version: of the package that was measured.
        processor: its name and vector instructions, on which times and ratios depend.
    """

    name: str
    value: float
    unit: str = ""
    bar: float | None = None
    at_most: bool = False
    reference: str = ""
    date: str = ""
    measure: str = ""
    version: str = ""
    processor: str = ""

    @property
    def verdict(self) -> str:
        """``ok``, ``MISS``, or "" without a bar."""
        if self.bar is None:
            return ""
        return (
            "ok" if (self.value <= self.bar if self.at_most else self.value >= self.bar) else "MISS"
        )

    @property
    def limit(self) -> str:
        """The bar with its direction, such as ``at most 3``; "" without a bar."""
        return (
            ""
            if self.bar is None
            else f"{'at most' if self.at_most else 'at least'} {self.bar:.5g}"
        )


class Report:
    """Results of one benchmark.

    Args:
        benchmark: name below ``benchmarks``, such as ``speed.text``.
        protocol: what comparable results have in common, such as a search; results of another
            protocol are not kept.
    """

    def __init__(self, benchmark: str, protocol: str = "") -> None:
        self.benchmark = benchmark
        self.measure = measure_hash(benchmark)
        if protocol:
            self.measure += f"-{sha256(protocol.encode()).hexdigest()[:6]}"
        self.results: list[Result] = []

    def add(
        self,
        name: str,
        value: float,
        unit: str = "",
        *,
        at_most: float | None = None,
        at_least: float | None = None,
        reference: str = "",
    ) -> None:
        """Record a value and print it in one line, with its bar and verdict."""
        bar, today = at_most if at_most is not None else at_least, date.today().isoformat()
        result = Result(
            name,
            value,
            unit,
            bar,
            at_most is not None,
            reference,
            today,
            self.measure,
            __version__,
            processor(),
        )
        self.results.append(result)
        line = f"{name:<58} {value:10.4g} {unit:<12} {reference}"
        print(f"{line:<84}  {result.limit}  {result.verdict}".rstrip(), flush=True)

    def write(self, folder: Path = RESULTS) -> None:
        """Write the results as JSON, one per line. Results of an earlier run that were not measured
        again are kept, if metrics and protocol are the same."""
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / f"{self.benchmark}.json"
        previous = read_results(file) if file.is_file() else []
        previous = [result for result in previous if result.measure == self.measure]
        measured = {result.name: result for result in self.results}
        results = [measured.pop(result.name, result) for result in previous]
        lines = [_line(result) for result in [*results, *measured.values()]]
        file.write_text("[\n" + ",\n".join(lines) + "\n]\n")


def read_results(file: Path) -> list[Result]:
    """Read the results of one benchmark."""
    return [Result(**entry) for entry in json.loads(file.read_text())]


def _line(result: Result) -> str:
    """Return a result as JSON, without empty fields."""
    entry = {
        name: value
        for name, value in asdict(result).items()
        if not (value is None or value is False or value == "")
    }
    return json.dumps(entry, ensure_ascii=False)


def load() -> str:
    """Return the load of the machine: above the number of its cores, times are too long."""
    return f"load {os.getloadavg()[0]:.1f}"


def wall_seconds(function: Callable[[], object]) -> float:
    """Return the wall time of one call."""
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def cpu_seconds(function: Callable[[], object]) -> float:
    """Return the CPU time of one call, summed over its threads: other processes hardly change
    it."""
    start = time.process_time()
    function()
    return time.process_time() - start


def peak_kilobytes() -> int:
    """Return the largest resident memory of this process so far."""
    # getrusage would include the peak of the parent process.
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0])
