"""Compositionality benchmark: rows of the leaderboard, and how far bags of words deviate from
chance."""

from benchmarks.quality import compositionality as benchmark
from benchmarks.scene_systems import SYSTEMS, VISUAL


def test_every_system_with_texts_has_a_row() -> None:
    assert set(benchmark.TEXTS) == set(SYSTEMS) - {VISUAL}
    assert set(benchmark.BAGS) == {
        "structure-preserving",
        "semantic retrieval (V+T)",
        "WSABIE",
        "order-free",
        "CCA",
    }


def test_page_and_report_of_two_systems() -> None:
    def result(nouns: float) -> dict[str, object]:
        edit = {"accuracy": nouns, "low": nouns - 1, "high": nouns + 1, "captions": 9}
        return {"edits": {"nouns": edit}, "recalls": [40.0, 30.0]}

    results = {"SMILE + InfoNCE": result(80.0), "WSABIE": result(50.5)}
    page = benchmark.page(results)
    assert (
        "| SMILE + InfoNCE | SRU of 2 layers | - | 80.0 (79.0 to 81.0) | - | - | - | - | 40.0 "
        "| 30.0 |" in page
    )
    assert "Not trained yet: BEAN + InfoNCE, BEAN + SoDeep + InfoNCE" in page
    values = {found.name: found for found in benchmark.summarize(results).results}
    deviation = values["bags of words, same words in another order: largest deviation from 50 %"]
    assert (deviation.value, deviation.verdict) == (0.5, "MISS")
    assert values["SMILE + InfoNCE: mean accuracy over the kinds of edits"].value == 80.0
