"""Statements of pages that compare rows: they hold in their records, and a false one is refused."""

import re
from pathlib import Path

import pytest

from benchmarks import render as pages
from benchmarks import statements
from benchmarks.common import ROOT

RECORD = """# Record

| system | recall sum | difference |
| --- | --- | --- |
| CCA | 278.1 | - |
| linear, soft | 269.3 ± 2.3 | -9.0 (-12.0 to -3.5) |
| SMILE + InfoNCE | 1,295.1 ± 2.4 | +17.0 (+2.5 to +33.0) |
| WSABIE | 283.8 ± 6.0 | +5.7 (-4.4 to +17.5) |
"""


@pytest.mark.parametrize(
    ("claim", "fault"),
    [
        ("recall sum: linear, soft < CCA < WSABIE < SMILE + InfoNCE", ""),
        ("recall sum: CCA < linear, soft", "this does not hold: recall sum: CCA < linear, soft"),
        ("recall sum: 270 < CCA", ""),
        ("recall sum: CCA ~ WSABIE", ""),
        ("recall sum: CCA ~ linear, soft", "does not hold"),
        ("recall sum: WSABIE - CCA < 6", ""),
        ("recall sum: WSABIE - CCA < CCA - linear, soft", ""),
        ("recall sum: WSABIE - CCA < 5", "does not hold"),
        ("difference: linear, soft < 0", ""),
        ("difference: WSABIE ~ 0", ""),
        ("difference: 0 < WSABIE", "does not hold"),
        ("difference: 0 < SMILE + InfoNCE", ""),
        ("difference: CCA < 0", "no row 'CCA' with a value"),
        ("recall sum: BEAN < CCA", "no row 'BEAN' with a value"),
        ("NDCG: CCA < WSABIE", "no table has a column 'NDCG'"),
        ("recall sum: CCA", "nothing is compared"),
    ],
)
def test_a_claim_compares_cells_as_its_signs_say(tmp_path: Path, claim: str, fault: str) -> None:
    (tmp_path / "record.md").write_text(RECORD)
    found = statements.fault_of(claim, statements.tables_of(tmp_path / "record.md"))
    assert found.startswith(fault) or fault in found
    assert bool(found) == bool(fault)


def test_a_page_with_a_statement_that_its_record_contradicts_is_not_rendered() -> None:
    """By the real record: SMILE finds more than BEAN there."""
    text = (
        "<!-- holds in docs/records/leaderboard_flickr8k.md:\n"
        "recall sum: BEAN + InfoNCE < SMILE + InfoNCE; recall sum: SMILE + InfoNCE < BEAN + InfoNCE -->"
    )
    with pytest.raises(ValueError, match=r"docs/page.md: this does not hold: recall sum: SMILE"):
        statements.check("docs/page.md", text)


def test_all_pages_hold_and_each_section_of_causes_names_its_records() -> None:
    assert pages.render()
    text = (ROOT / "docs" / "leaderboard_analysis.md").read_text()
    sections = re.split(r"^## ", text, flags=re.MULTILINE)[1:]
    for section in sections:
        title = section.partition("\n")[0]
        rendered = "rendered by 'python -m benchmarks render'" in section
        assert rendered or statements.STATEMENT.search(section), title
