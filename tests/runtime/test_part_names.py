"""Names of parts and arguments by their sources are those of the imported classes."""

import inspect
import json
import subprocess
import sys

import pytest

from bifocal import registry
from runtime.part_names import arguments, part_names, places, wrong_names

PACKAGES = [
    "datasets.corpora", "evaluation", "features.extractors", "hubness", "image_encoders",
    "localization", "localization.heads", "losses", "models", "ranking_heads",
    "ranking_heads.backbones", "sorters", "text.vectorizers", "text_encoders",
    "training.augmentations", "training.batches", "training.initialization", "training.schedules",
    "training.validators",
]  # fmt: skip
UNKNOWN = {
    "AutoLocalizer", "ClassSentences", "Compositionality", "DataQuality",
    "HingeAveragePrecisionLoss", "MultiLabelSoftMarginLoss", "PerRegionLocalizer", "ResidualHead",
    "SimilarImages", "TextModifiers", "ZeroShot",
}  # fmt: skip
"""Parts whose constructor is inherited from outside the library, or has none."""
LATE = ("torch", "kfp", "mlflow")


@pytest.mark.parametrize("package", PACKAGES)
def test_sources_name_the_parts_and_arguments_of_a_package(package: str) -> None:
    package = f"bifocal.{package}"
    parts = registry.registered(package)
    assert part_names(package) == set(parts)
    known = {name: arguments(places(package)[name]) for name in parts}
    expected = {
        name: None if name in UNKNOWN else set(inspect.signature(part).parameters)
        for name, part in parts.items()
    }
    assert known == expected


def test_wrong_names_are_suggested() -> None:
    loss = {"name": "InfoNCELoss", "temprature": 1}
    (argument,) = wrong_names("bifocal.losses", loss)
    assert argument.startswith("InfoNCELoss takes no 'temprature'; did you mean 'temperature'?")
    (part,) = wrong_names("bifocal.losses", "InfoNCELos")
    assert part.startswith("bifocal.losses has no 'InfoNCELos'; did you mean 'InfoNCELoss'?")
    assert not list(wrong_names("bifocal.losses", "my_losses:MyLoss"))
    assert not list(wrong_names("torch.optim", "Adm"))


@pytest.mark.parametrize(
    ("module", "arguments", "problem"),
    [
        ("pipelines", ["rnu"], "Did you mean 'run'"),
        ("pipelines", ["run", "--recipy", "a"], "No such option"),
        ("pipelines", ["run", "--set", "train_embeding={}"], "train_embeding: unknown section"),
        ("pipelines", ["run", "--set", "train_embedding.dimm=3"], "unknown key"),
        ("pipelines", ["compile", "--set", "train_embedding.model=TwoBranch"], "has no 'TwoBranch"),
        ("pipelines", ["run", "--set", "prepare_dataset.corpus.sizes=3"], "takes no 'sizes'"),
        ("components.__main__", ["trian_embedding"], "trian_embedding"),
        ("pipelines.app", ["serch"], "did you mean 'search'"),
        *(
            ("pipelines.app", [command, "--nothing"], "No such option")
            for command in ("index", "search", "where", "serve", "export", "inspect")
        ),
    ],
)
def test_a_wrong_name_is_told_without_heavy_packages(
    module: str, arguments: list[str], problem: str
) -> None:
    main = "pipelines.commands" if module == "pipelines" else module
    program = (
        "import atexit, json, sys\n"
        f"atexit.register(lambda: print(json.dumps(sorted({set(LATE)!r} & sys.modules.keys()))))\n"
        f"sys.argv = ['x', *{arguments!r}]\nfrom {main} import main\nmain()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert problem in done.stderr
    assert done.returncode != 0
    assert json.loads(done.stdout.splitlines()[-1]) == []
