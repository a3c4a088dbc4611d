"""Small tables of the page: pointing by category, phrase localization, objects, semantic ranking, people."""

from collections.abc import Mapping
from typing import Any

from bifocal.report.page import Table

CATEGORIES = 12


def grounding_tables(figures: Mapping[str, Any]) -> list[Table]:
    """What ``metrics.json`` holds of where things are, beside the accuracy of all phrases."""
    found = []
    categories = figures.get("pointing", {}).get("categories", {})
    if categories:
        rows = [
            (name, *(f"{row[key]:.1f}" for key in ("accuracy", "centre", "random")), f"{row['phrases']:,}")
            for name, row in list(categories.items())[:CATEGORIES]
        ]
        caption = "Pointing by category" + (f", the {CATEGORIES} largest" if len(categories) > CATEGORIES else "")
        found.append(Table(caption, ("", "hit", "centre", "random", "phrases"), rows))
    if "accuracy_of_k" in figures.get("pointing", {}):
        pointing = figures["pointing"]
        rows = [(f"k = {k}", f"{value:.1f}") for k, value in pointing["accuracy_of_k"].items()]
        caption = f"k = {pointing['k']} was chosen on {pointing['chosen_on']:,} phrases of the split val"
        found.append(Table(caption, ("", "hit there"), rows))
    if "phrase_localization" in figures:
        part = figures["phrase_localization"]
        rows = [(name.replace("_", " "), f"{part[name]:.1f}", f"{value:.1f}") for name, value in part["chance"].items()]
        rows.append((f"mAP of {part['unique']:,} phrases", f"{part['mAP']:.1f}", ""))
        found.append(Table("Phrase localization over proposals, IoU 0.5", ("", "value", "chance"), rows))
    if "objects" in figures:
        part = figures["objects"]
        rows = [("point", f"{part['point_mAP']:.1f}"), ("point at the centre", f"{part['centre_mAP']:.1f}")]
        rows += [(f"mask, {name}", f"{value:.1f}") for name, value in part.items() if name.startswith("IoU@")]
        caption = (
            f"{part['objects']:,} objects of {part['categories']} categories; masks from {part['level']:g} of a peak"
        )
        found.append(Table(caption, ("", "mAP"), rows))
    return found


def meaning_tables(figures: Mapping[str, Any]) -> list[Table]:
    """What ``metrics.json`` holds of images that look for images."""
    if "semantic" not in figures:
        return []
    part = figures["semantic"]
    chance, rows = part["chance"], []
    for name in (name.removeprefix("NDCG") for name in chance if name.startswith("NDCG")):
        cells = [f"{values[measure + name]:.1f}" for measure in ("NDCG", "PCC") for values in (part, chance)]
        rows.append(("area" if name == "_area" else f"R = {name[1:]}", *cells))
    found = [Table("Against tf-idf of the captions", ("", "NDCG@R", "random", "PCC@R", "random"), rows)]
    if "triplets" in figures:
        people = figures["triplets"]
        names = {
            "agreement": "this model", "tf_idf": "captions, tf-idf", "tf_idf_matched": "captions matched, tf-idf",
            "fisher_matched": "captions matched, Fisher vectors",
        }  # fmt: skip
        rows = [(label, f"{people[name]:.1f}") for name, label in names.items()]
        found.append(Table(f"Agreement with people on {people['triplets']:,} triplets", ("", "percent"), rows))
    return found
