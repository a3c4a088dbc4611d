"""Parameters and recipes as people write them: the right value, or one sentence before any work."""

import json
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml
from ruamel.yaml import YAML

from tests.rehearsals.reports.world import CHECKOUT, World, reported

RATES = ("1e-3", "5e-05", "1E-4")
RATE = "train_embedding.phases.0.learning_rate"


def compiled(world: World, *settings: str, recipe: str | bytes = "", **variables: str) -> str:
    """Compile the pipeline with settings and a recipe; return the compiled text, or the text of an
    error."""
    if not (world.folder / "params.yaml").exists():
        shutil.copy(CHECKOUT / "params.yaml", world.folder)
    options = [option for setting in settings for option in ("--set", setting)]
    if recipe:
        options += ["--recipe", str(world.write("recipe.yaml", recipe))]
    target = world.folder / "compiled.yaml"
    target.unlink(missing_ok=True)
    output = world.pipelines(
        "compile", *options, "--revision", 40 * "a", "--output", target, **variables
    )
    return target.read_text() if target.is_file() else output


def values_of(text: str, key: str) -> set[str]:
    """Return the values of a key in all sections of a compiled pipeline, as texts."""
    found: set[str] = set()

    def walk(value: Any) -> None:
        if isinstance(value, dict):
            found.update(str(value[key]) for _ in range(key in value))
        if isinstance(value, dict | list):
            for inner in value.values() if isinstance(value, dict) else value:
                walk(inner)
        elif isinstance(value, str) and value[:1] in "{[":
            with suppress(ValueError):
                walk(json.loads(value))

    walk(list(yaml.safe_load_all(text)))
    return found


@reported(
    "M1", "rates 1e-3, 5e-05 and 1E-4 by --set", "dvc#5971, catalyst#380, spras#484", [True] * 3
)
def rates(world: World) -> Any:
    return [
        str(float(text)) in values_of(compiled(world, f"{RATE}={text}"), "learning_rate")
        for text in RATES
    ]


@reported("M1", "params.yaml as 'dvc exp run -S' writes it", "dvc#5971, #8466", True)
def rate_of_dvc(world: World) -> Any:
    dvc = YAML()
    values = dvc.load((CHECKOUT / "params.yaml").read_text())
    values["train_embedding"]["phases"][0]["learning_rate"] = 0.00005
    with (world.folder / "params.yaml").open("w") as file:
        dvc.dump(values, file)
    assert "5e-05" in (world.folder / "params.yaml").read_text()
    return "5e-05" in values_of(compiled(world), "learning_rate")


@reported("M1", "seeds 010 (ten, as for DVC), 1_000, 0o17 and 0x1F", "dvc#5971", [True] * 4)
def octal(world: World) -> Any:
    seeds = {"010": "10", "1_000": "1000", "0o17": "15", "0x1F": "31"}
    return [
        value in values_of(compiled(world, f"seed={text}"), "seed") for text, value in seeds.items()
    ]


@reported("M1", "unseen: yes, on and 1:30 as names", "dvc#5971", [True] * 3)
def words(world: World) -> Any:
    return [
        text in values_of(compiled(world, f"embed_collection.name={text}"), "name")
        for text in ("yes", "on", "1:30")
    ]


@reported("M2", "--set with a text that is not YAML", "kubeflow/pipelines#8933, #2642", [True] * 6)
def no_yaml(world: World) -> Any:
    texts = ("*x", "@team", "%x", "[{", '"\\ud83d\\ude00', "`id`")
    outputs = [compiled(world, f"register_model.model={text}") for text in texts]
    return [
        "error: " in output and "Traceback" not in output and "register_model.model" in output
        for output in outputs
    ]


@reported("M3", "a repeated key in a recipe: both lines", "omegaconf#1194, ruyaml#43", "line 3")
def repeated_key(world: World) -> Any:
    output = compiled(
        world, recipe="register_model:\n  model: a\nregister_model:\n  alias: other\n"
    )
    return (
        output
        if "error: " in output and "register_model" in output
        else "the first section is lost"
    )


@reported(
    "M3",
    "unseen: a repeated key in params.yaml, deep, in flow style, as a number",
    "ruyaml#43",
    [True] * 3,
)
def repeated_keys(world: World) -> Any:
    texts = (
        "{register_model: {model: a, model: b}}",
        "a: {1: x, 1: y}",
        "? register_model\n: {}\nregister_model: {}\n",
    )
    return [
        "error: " in (output := compiled(world, recipe=text)) and "Traceback" not in output
        for text in texts
    ]


@reported("M4", "a date as the name of a model", "own", True)
def date_name(world: World) -> Any:
    return "2026-11-27" in values_of(compiled(world, "register_model.model=2026-11-27"), "model")


@reported("M5", "a recipe in Latin-1: the error names the file", "great-docs#217", "recipe.yaml")
def latin_recipe(world: World) -> Any:
    output = compiled(world, recipe="register_model:\n  model: café\n".encode("latin-1"))
    return output if "error: " in output else "no error"


RECIPES: dict[str, bytes] = {
    "UTF-16": "register_model: {model: a}".encode("utf-16"),
    "zero bytes": bytes(100),
    "tabs": b"a:\n\tb: 1",
    "two documents": b"---\na: 1\n---\nb: 2\n",
    "a list": b"- a\n",
    "a bomb": b"a: &a [x, x]\n"
    + b"".join(
        b"b%d: &b%d [%s]\n" % (n, n, b", ".join([b"*a" if n == 0 else b"*b%d" % (n - 1)] * 9))
        for n in range(12)
    ),
    "10,000 deep": b"[" * 10_000,
    "a tag": b"register_model: !!python/object/apply:os.system [id]\n",
    "its own alias": b"a: &a [*a]\n",
}


@reported(
    "M5",
    "unseen: other files as a recipe",
    "omegaconf#1194, dvc#10984",
    dict.fromkeys(RECIPES, True),
)
def odd_recipes(world: World) -> Any:
    outputs = {name: compiled(world, recipe=content) for name, content in RECIPES.items()}
    return {
        name: "error: " in output and "Traceback" not in output for name, output in outputs.items()
    }


@reported("M6", "a recipe sets embed_collection.name only", "kubeflow/pipelines#5830", True)
def section_name(world: World) -> Any:
    return "mine" in values_of(compiled(world, recipe="embed_collection: {name: mine}\n"), "name")


NAMES = ("team/bifocal", "a:b", "it's", "", " ", 300 * "a")


@reported(
    "M13",
    "names of models that MLflow refuses",
    "mlflow#3322, open-metadata#31387",
    dict.fromkeys(NAMES, True),
)
def model_names(world: World) -> Any:
    outputs = {name: compiled(world, f'register_model.model="{name}"') for name in NAMES}
    return {
        name: "error: " in output and "register_model.model" in output
        for name, output in outputs.items()
    }


@reported(
    "M13",
    "aliases latest and v1; unseen: V2, LATEST, 1st, 300 letters, champion",
    "own",
    [False] * 6 + [True],
)
def aliases(world: World) -> Any:
    names = ("latest", "v1", "V2", "LATEST", "1st", 300 * "a", "champion")
    return ["error: " not in compiled(world, f"register_model.alias={name}") for name in names]


@reported(
    "M18",
    "a placeholder of Kubeflow in a parameter",
    "kubeflow/pipelines#11035, #12040",
    [True] * 3,
)
def placeholders(world: World) -> Any:
    texts = ("{{channel:task=;name=a;type=String;}}", "{{$}}", "{{$.inputs.parameters['seed']}}")
    seen = []
    for text in texts:
        output = compiled(world, f'embed_collection.name="x {text}"')
        is_same = "error: " not in output and f"x {text}" in values_of(output, "name")
        seen.append(is_same or output.strip().splitlines()[-3:])
    return seen


@reported(
    "M19",
    ".inf and .nan are refused before any work",
    "optuna-examples#40, mlflow#1234",
    [True] * 4,
)
def infinite(world: World) -> Any:
    keys = (RATE, "train_embedding.phases.0.loss.temperature")
    outputs = [compiled(world, f"{key}={value}") for key in keys for value in (".inf", ".nan")]
    return ["error: " in output and "Traceback" not in output for output in outputs]


@reported("M19", "unseen: 1e999, -.inf, .NaN in other numbers and lists", "optuna#2809", [True] * 3)
def other_infinite(world: World) -> Any:
    settings = (
        f"{RATE}=1e999",
        "prepare_dataset.max_rejected_fraction=-.inf",
        "train_embedding.max_grad_norm=.NaN",
    )
    return ["error: " in compiled(world, setting) for setting in settings]


@reported(
    "M8", "compile without git asks for --revision", "pytorch-fcn#108", "git is not installed"
)
def compile_without_git(world: World) -> Any:
    shutil.copy(CHECKOUT / "params.yaml", world.folder)
    return world.pipelines("compile", "--output", "o.yaml", PATH=str(world.folder))


@reported(
    "M8",
    "a stage without git records the commit 'unknown'",
    "DeepFilterNet#676, chainerrl#123",
    True,
)
def stage_without_git(world: World) -> Any:
    root = Path(world.photos("photos"))
    world.table("photos")
    recipe = world.write(
        "corpus.yaml", f"prepare_dataset: {{corpus: {{name: ImageFolder, root: '{root}'}}}}\n"
    )
    options = ("prepare_dataset", "--recipe", recipe, "--params", CHECKOUT / "params.yaml")
    output = world.stage(*options, PATH=str(world.folder))
    return (world.folder / "artifacts/dataset/manifest.json").is_file() or output


@reported("M8", "doctor without git", "DeepFilterNet#676", False)
def doctor_without_git(world: World) -> Any:
    shutil.copy(CHECKOUT / "params.yaml", world.folder)
    return "Traceback" in world.pipelines("doctor", PATH=str(world.folder))
