"""Folder of a pretrained transformer: one of the user, or a download from the Hugging Face hub."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from bifocal.backbones.hub import download
from bifocal.text.transformer.folder import TransformerFolder

FILES = ("*.json", "*.safetensors")
EXCLUDED_FILES = ("onnx/*", "openvino/*")


def find_folder(model: str | None, path: Path | str | None) -> TransformerFolder:
    """Return the files of the folder ``path``, or of ``model`` on the Hugging Face hub."""
    for problem in one_source({"model": model, "path": path}):
        raise ValueError(problem)
    if path is not None:
        return TransformerFolder.read(Path(path))
    try:
        folder = download(str(model), FILES, EXCLUDED_FILES)
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{error}. Set path to a folder with them, in place of model") from error
    return TransformerFolder.read(folder)


def one_source(arguments: Mapping[str, Any]) -> Iterator[str]:
    """Yield a message if both or neither of ``model`` and ``path`` are given."""
    given = [name for name in ("model", "path") if arguments.get(name) is not None]
    if not given:
        yield "path is missing: set it to the folder of a pretrained transformer, or model to its name on Hugging Face"
    elif len(given) > 1:
        yield f"model {arguments['model']!r} and path {arguments['path']!r} are both given: leave one out"
