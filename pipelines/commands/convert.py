"""``python -m pipelines convert``."""

from pathlib import Path

import click

FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
TARGET = click.Path(dir_okay=False, path_type=Path)


@click.group()
def convert() -> None:
    """Convert published files that hold pickles; none of their code runs."""


@convert.command("skip-thoughts")
@click.argument("table", type=FILE)
@click.argument("dictionary", type=FILE)
@click.argument("target", type=TARGET)
def skip_thoughts(table: Path, dictionary: Path, target: Path) -> None:
    """Write the word vectors of TABLE (utable.npy) and DICTIONARY (dictionary.txt) to TARGET
    (.npy).

    PretrainedWordVectors reads the result. Needs 3 GB of memory.
    """
    from bifocal.text.skip_thoughts import convert_skip_thoughts

    words, dim = convert_skip_thoughts(table, dictionary, target)
    click.echo(f"{target}: {words} words of {dim} dimensions")


@convert.command("bottom-up")
@click.argument("checkpoint", type=FILE)
@click.argument("target", type=TARGET)
def bottom_up(checkpoint: Path, target: Path) -> None:
    """Write the Faster R-CNN of CHECKPOINT (bua-caffe-frcn-r101-k36.pth) to TARGET (.safetensors).

    The extractor BottomUp reads the result with FromFile.
    """
    from bifocal.backbones.detectors.bottom_up import convert_bottom_up

    click.echo(f"{target}: {convert_bottom_up(checkpoint, target)} tensors")
