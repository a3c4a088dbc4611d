"""The encoders 'small' of ``bifocal index``: two pretrained networks, exported once."""

import hashlib
import os
import shutil
from pathlib import Path

from bifocal.export.cache import cache_folder
from pipelines.app.training.backbones import KNOWN, WEIGHTS_VARIABLE, is_reachable

FORMAT = 1
"""Number of the exported encoders in the names of the cached folders."""
BACKBONE, SENTENCES = "tf_efficientnet_lite2", "sentence-transformers/all-MiniLM-L6-v2"
FETCH = (
    "the encoder small needs two networks, which cannot be downloaded now: put model.safetensors of "
    f"https://huggingface.co/timm/{BACKBONE}.in1k and a folder with the files of https://huggingface.co/{SENTENCES} "
    "into one folder, and name it with --weights"
)


def small_encoders(weights: Path | None) -> Path:
    """Return the folder of the exported encoders; the user's cache keeps it, and only its first export needs torch.

    Args:
        weights: folder with the weights of a backbone and the folder of a sentence encoder; by default
            ``BIFOCAL_WEIGHTS``, or else both are downloaded.
    """
    named = weights or (Path(os.environ[WEIGHTS_VARIABLE]) if os.environ.get(WEIGHTS_VARIABLE) else None)
    if named is not None and not named.is_dir():
        raise FileNotFoundError(f"--weights {named}: expected a folder with a backbone and a sentence encoder")
    files = [] if named is None else sorted(named.rglob("*.safetensors"))
    states = [(str(file.resolve()), file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    cache = cache_folder("encoders")
    folder = cache / hashlib.sha256(f"{FORMAT} {states}".encode()).hexdigest()[:32]
    if not folder.is_dir():
        from bifocal.export.class_sentences import export_class_sentences
        from pipelines.app.training.pointing import head_of_weights

        head = head_of_weights(named or _download(cache / "downloads"))
        partial = folder.with_name(f"{folder.name}.{os.getpid()}")
        export_class_sentences(head, partial)
        shutil.rmtree(folder, ignore_errors=True)
        partial.rename(folder)
    return folder


def _download(folder: Path) -> Path:
    """Return a folder with both networks, downloaded from the Hugging Face hub."""
    from huggingface_hub import constants
    from safetensors.torch import save_file

    from bifocal.registry import build
    from bifocal.text.transformer.hub import find_folder

    extractor = {"name": "Hypercolumns", "backbone": BACKBONE, "classes": True, **KNOWN[BACKBONE]}
    backbone = build("bifocal.features.extractors", extractor).backbone
    if not is_reachable(constants.ENDPOINT):
        constants.HF_HUB_OFFLINE = True  # Take cached files, or fail at once: retries last minutes.
    try:
        state, sentences = backbone.pretrained_state(), find_folder(SENTENCES, None).root
    except Exception as error:  # the libraries raise classes of several packages
        raise FileNotFoundError(FETCH) from error
    folder.mkdir(parents=True, exist_ok=True)
    save_file(state, folder / f"{BACKBONE}.safetensors")
    shutil.copytree(sentences, folder / "sentences", dirs_exist_ok=True)
    return folder
