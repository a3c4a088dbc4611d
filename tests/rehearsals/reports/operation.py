"""Parameters and recipes as people write them: the right value, or one sentence before any work."""

import re
import shutil
from typing import Any

from ruamel.yaml import YAML

from tests.rehearsals.reports.world import CHECKOUT, World, reported


def compiled(world: World, recipe: bytes = b"") -> str:
    """Compile the pipeline with a recipe; return the compiled text, or the text of an error."""
    if not (world.folder / "params.yaml").exists():
        shutil.copy(CHECKOUT / "params.yaml", world.folder)
    options = ("--recipe", world.write("recipe.yaml", recipe)) if recipe else ()
    target = world.folder / "compiled.yaml"
    target.unlink(missing_ok=True)
    output = world.pipelines("compile", *options, "--revision", 40 * "a", "--output", target)
    return target.read_text() if target.is_file() else output


@reported("M1", "params.yaml as 'dvc exp run -S' writes it", "dvc#5971, #8466", True)
def rate_of_dvc(world: World) -> Any:
    dvc = YAML()
    values = dvc.load((CHECKOUT / "params.yaml").read_text())
    values["train_embedding"]["phases"][0]["learning_rate"] = 0.00005
    with (world.folder / "params.yaml").open("w") as file:
        dvc.dump(values, file)
    assert "5e-05" in (world.folder / "params.yaml").read_text()
    return re.search(r"learning_rate\W+5e-05", compiled(world)) is not None


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
    outputs = {name: compiled(world, content) for name, content in RECIPES.items()}
    return {
        name: "error: " in output and "Traceback" not in output for name, output in outputs.items()
    }


@reported("M8", "doctor without git", "DeepFilterNet#676", False)
def doctor_without_git(world: World) -> Any:
    shutil.copy(CHECKOUT / "params.yaml", world.folder)
    return "Traceback" in world.pipelines("doctor", PATH=str(world.folder))
