"""Wrong uses of the command ``bifocal``: the exact sentences, and no work before them."""

import shlex
import shutil
import socket
from pathlib import Path

import pytest
from click.testing import Result

from pipelines.app.demo import unpack
from tests.pipelines.app.conftest import Command


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wrong") / "demo"
    unpack(folder)
    return folder


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory, run: Path) -> Path:
    """Five images with captions."""
    folder = tmp_path_factory.mktemp("few") / "photos"
    folder.mkdir()
    for number in range(5):
        shutil.copy(run / "images" / f"{number:05d}.jpg", folder)
    lines = [f"{number:05d}.jpg,a red star" for number in range(5)]
    (folder / "captions.csv").write_text("\n".join(["image,caption", *lines]))
    return folder


@pytest.fixture(scope="module")
def wrong(few: Path, run: Path) -> Path:
    """Files of the wrong kind, and a folder of twelve images with captions, two of them broken."""
    folder = few.parent / "wrong"
    (folder / "full").mkdir(parents=True)
    for name in ("notes.txt", "odd.safetensors", "full/own.txt"):
        (folder / name).write_text("notes")
    (folder / "flow" / "artifacts" / "embedding").mkdir(parents=True)
    (folder / "flow" / "params.yaml").touch()
    (folder / "flow" / "artifacts" / "metrics").symlink_to(folder)
    (folder / "recipe.yaml").write_text("train_embeding: {members: 2}")
    shutil.copytree(run / "images", folder / "plain")
    shutil.copytree(few, folder / "many")
    for number in range(5, 12):
        shutil.copy(run / "images" / f"{number:05d}.jpg", folder / "many")
    for number in range(2):
        (folder / "many" / f"{number:05d}.jpg").write_bytes(b"broken")
    lines = [f"{number:05d}.jpg,a red star" for number in range(12)]
    (folder / "many" / "captions.csv").write_text("\n".join(["image,caption", *lines]))
    return folder


def sentence(result: Result) -> str:
    """Return what the command prints after "error:"."""
    assert result.exit_code != 0, result.output
    usage = [
        line.removeprefix("Error: ")
        for line in result.output.splitlines()
        if line.startswith("Error: ")
    ]
    return usage[-1] if usage else str(result.exception)


TOO_FEW = (
    "{folder} has {count} images with captions, and a training needs at least 10: add images "
    "with captions, or search these without a training, by 'bifocal index {folder}'"
)
NO_CAPTIONS = (
    "DIR/plain has no captions: it must contain images and captions.csv, .tsv, .jsonl or .parquet, "
    "or photo.txt beside photo.jpg, or tar shards, or a zip file, or Parquet files with images; "
    "'bifocal index' searches images without captions"
)
WRONG = {
    "search nothere.jpg --run RUN": "nothere.jpg: there is no such image file",
    **{
        f"search star --run RUN --where {shlex.quote(where)}": f"--where is '{where}', expected JSON "
        'such as {"year": {"min": 2000}}'
        for where in ("[1]", "null", "5", '"x"', "{year")
    },
    "search '' --run RUN": "the query is empty: name something to find in the images",
    "search 'a star' --minus ' ' --run RUN": "the query is empty: name something to find in the images",
    "where RUN/images/00000.jpg '' --run RUN": "the phrase is empty: name something to find in the image",
    "serch 'a dog'": "unknown command 'serch'; did you mean 'search'?",
    "trainn FEW": "unknown command 'trainn'; did you mean 'train'?",
    "zzzz": "No such command 'zzzz'.",
    "train FEW": TOO_FEW.format(count=5, folder="FEW"),
    "train FEW --encoder clip": TOO_FEW.format(count=5, folder="FEW"),
    "train DIR/plain --encoder small": NO_CAPTIONS,
    "inspect DIR/plain --page DIR/inspection.html": NO_CAPTIONS,
    "inspect FEW --page DIR/inspection.html": TOO_FEW.format(count=5, folder="FEW"),
    "evaluate --run RUN": (
        "RUN has no training to evaluate: 'bifocal index' and 'bifocal demo' only search; see "
        "'bifocal train'"
    ),
    "evaluate --run DIR/flow": (
        "DIR/flow has artifacts of a flow: type 'python -m pipelines metrics DIR/flow'"
    ),
    "export RUN/params.yaml/new --run RUN": "RUN/params.yaml/new: Not a directory",
    "search 'a star' --run RUN --picture RUN/no/x.png": "RUN/no/x.png: No such file or directory",
    "where RUN/images/00000.jpg star --run RUN --picture RUN/no/x.png": "RUN/no/x.png: No such file or directory",
    "search 'a star' --run RUN --picture DIR/x.xyz": (
        "Invalid value for '--picture': DIR/x.xyz: expected a name that ends in .png, .jpg, "
        ".jpeg, .webp"
    ),
    "search zebra --run RUN": "the model knows none of the words of 'zebra': use words of its captions",
    "search 😀 --run RUN": "the model knows none of the words of '\U0001f600': use words of its captions",
    "search 赤い星 --run RUN": "the model knows none of the words of '赤い星': use words of its captions",
    "search 'a star' --run DIR/no": "DIR/no is not a run folder: it has no params.yaml; see 'bifocal train'",
    "search 'a star' --run RUN -k 0": "Invalid value for '-k': 0 is not in the range 1<=x<=100.",
    "where DIR/no.jpg star --run RUN": "Invalid value for 'IMAGE': File 'DIR/no.jpg' does not exist.",
    "where DIR/notes.txt star --run RUN": (
        "DIR/notes.txt: not an image in a supported format (JPEG, "
        "PNG, GIF, BMP, TIFF, WEBP, PPM, JPEG2000, AVIF, HEIF)"
    ),
    "index DIR/no": "Invalid value for 'DIRECTORY': Path 'DIR/no' does not exist.",
    "index FEW --folder DIR/full": "DIR/full is not a run folder, and it is not empty: name another one with --folder",
    "index FEW --folder DIR/notes.txt/new": "DIR/notes.txt/new: Not a directory",
    "export DIR/full --run RUN": "DIR/full exists already: name a new folder",
    "demo --folder DIR/full": "DIR/full is not a folder of 'bifocal demo': name a new folder with --folder",
    "delete no.jpg --run RUN": "RUN/artifacts/collection has no item 'no.jpg' among its 256: nothing was deleted",
    "train DIR/many --set seed=many": "parameters:\n  seed: got 'many'; input should be a valid integer",
    "train DIR/many --set seed": "--set 'seed': expected KEY=VALUE, such as train_embedding.model.dim=512",
    "train DIR/many --budget soon": "--budget soon: expected a time such as 90s, 30m or 2h",
    "train DIR/many --weights DIR/odd.safetensors": (
        "DIR/odd.safetensors is not a safetensors file (Error "
        "while deserializing header: header too small); convert it with safetensors.torch.save_file"
    ),
    "train DIR/many --weights DIR/no.safetensors": (
        "DIR/no.safetensors: no such file; expected a "
        "safetensors file with the weights of a timm model, or a folder with it and a sentence encoder"
    ),
    "train DIR/many --encoder small --weights DIR/odd.safetensors": (
        "DIR/odd.safetensors has no sentence encoder, which the encoder small needs: name a "
        "folder with the weights of EfficientNet-Lite2 and the folder of all-MiniLM-L6-v2"
    ),
    "train DIR/no": "Invalid value for 'DIRECTORY': Path 'DIR/no' does not exist.",
    "train DIR/many --recipe DIR/no.yaml": "Invalid value for '--recipe': Path 'DIR/no.yaml' does not exist.",
}


@pytest.mark.parametrize("line", WRONG)
def test_a_wrong_use_gets_one_sentence(
    line: str, run: Path, few: Path, wrong: Path, command: Command
) -> None:
    def filled(text: str) -> str:
        return text.replace("RUN", str(run)).replace("FEW", str(few)).replace("DIR/", f"{wrong}/")

    assert sentence(command(*map(filled, shlex.split(line)))) == filled(WRONG[line])
    assert not (few.parent / "runs").exists()


@pytest.mark.parametrize(
    "recipe", [("--set", "train_embeding.members=2"), ("--recipe", "DIR/recipe.yaml")]
)
def test_a_misspelled_key_is_named_before_a_download(
    recipe: tuple[str, str], wrong: Path, command: Command
) -> None:
    result = command("train", wrong / "many", recipe[0], recipe[1].replace("DIR", str(wrong)))
    expected = (
        "parameters:\n  train_embeding: unknown section; did you mean 'train_embedding'? "
        "Available: "
    )
    assert sentence(result).startswith(expected)
    assert not result.output


def test_unknown_words_are_named_and_the_others_are_searched(run: Path, command: Command) -> None:
    result = command("search", "a zebra and a red star", "--run", run)
    assert result.exit_code == 0, result.output
    assert result.output.startswith("words that the model does not know: zebra\n  1.  ")


def test_a_sentence_longer_than_a_file_name_is_searched(run: Path, command: Command) -> None:
    assert command("search", "a red star " * 40, "--run", run).exit_code == 0


def test_a_sentence_may_end_in_the_name_of_a_file(run: Path, command: Command) -> None:
    result = command("search", "a red star.png", "--run", run)
    assert result.exit_code == 0, result.output
    assert (
        "a red star.png: there is no such image file, so it is searched as a sentence"
        in result.output
    )


@pytest.mark.parametrize(
    ("split", "is_copy"), [("", True), pytest.param("test", False, marks=pytest.mark.slow)]
)
def test_a_training_without_a_split_is_refused_before_the_features(
    split: str, is_copy: bool, run: Path, recipe: Path, command: Command, tmp_path: Path
) -> None:
    folder, lines = tmp_path / "photos", ["image,caption" + (",split" if split else "")]
    folder.mkdir()
    for number in range(12):
        shutil.copy(
            run / "images" / f"{0 if is_copy else number:05d}.jpg", folder / f"{number}.jpg"
        )
        lines.append(f"{number}.jpg,a red star" + (f",{split}" if split else ""))
    (folder / "captions.csv").write_text("\n".join(lines))
    expected = (
        "no image is in "
        f"{'train or val (12 in test)' if split else 'val or test (12 in train)'}: give rows of"
    )
    result = command("inspect", folder, "--page", tmp_path / "page.html")
    assert result.exit_code == 1
    assert "a split without images" in result.output
    result = command("train", folder, "--run", tmp_path / "run", "--recipe", recipe)
    assert expected in str(result.exception)
    assert [path.name for path in (tmp_path / "run" / "artifacts").iterdir()] == ["dataset"]


def test_a_port_in_use_is_named_before_a_model_is_loaded(run: Path, command: Command) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        result = command("serve", "--run", run, "--port", port)
    assert sentence(result) == f"port {port} is in use: name another one, such as --port {port + 1}"


def test_another_host_needs_keys_or_the_word_open(run: Path, command: Command) -> None:
    result = command("serve", "--run", run, "--host", "0.0.0.0")
    assert "set BIFOCAL_API_KEYS, or say so with --open" in result.output
    assert result.exit_code == 2


def test_a_truncated_graph_gets_one_sentence(run: Path, command: Command, tmp_path: Path) -> None:
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    graph = copy / "artifacts" / "onnx" / "text_encoder.onnx"
    graph.write_bytes(graph.read_bytes()[:1000])
    expected = f"{graph} is not a complete ONNX graph: copy it or export the model again"
    assert sentence(command("search", "a star", "--run", copy)) == expected
    graph.unlink()
    expected = f"{graph} is missing; export the model again"
    assert sentence(command("search", "a star", "--run", copy)) == expected


def test_a_training_that_is_not_complete_is_not_of_late_interaction(
    run: Path, command: Command, tmp_path: Path
) -> None:
    shutil.copy(run / "params.yaml", tmp_path)
    expected = (
        f"{tmp_path} has no index: its training is not complete, its model is of late "
        "interaction, or a version before 0.3.0 trained it; the same 'bifocal train' "
        "completes a training"
    )
    assert sentence(command("search", "a star", "--run", tmp_path)) == expected


def test_moved_images_are_one_list_and_the_others_are_shown(
    run: Path, command: Command, tmp_path: Path
) -> None:
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    first = command("search", "a red star", "--run", copy, "-k", 3)
    paths = [
        line.split()[2]
        for line in first.output.splitlines()
        if line.strip()[:2] in ("1.", "2.", "3.")
    ]
    for path in paths[:2]:
        Path(path).unlink()
    result = command("search", "a red star", "--run", copy, "-k", 3)
    assert result.exit_code == 0, result.output
    assert f"cannot be read, so not on the sheet: {paths[0]}, {paths[1]}; run" in result.output
    assert f"-> {copy / 'search.png'}" in result.output


def test_ctrl_c_says_what_goes_on(
    few: Path, run: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*arguments: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("pipelines.app.train.compose", stop)
    assert sentence(command("train", few)) == "stopped; the same command goes on"
    monkeypatch.setattr("bifocal.search.trained_model.TrainedModel.__init__", stop)
    assert sentence(command("search", "a star", "--run", run)) == "stopped"
