"""What does a searchable folder of images cost, beside a loop of timm?

    make peers ONLY=folder

CPU time of two commands for 200 JPEG files of 500 x 375 pixels, with all of their imports: 'bifocal
index' with the encoders of the extra small, which also writes thumbnails and the index, and the
loop of timm's documentation with the same network, which only saves its features. Drawings of the
demo take the place of photographs, enlarged.
"""

import subprocess
import sys
from functools import partial
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

from PIL import Image

from benchmarks.common import Report
from benchmarks.peers.compare import compare, write
from benchmarks.peers.start import children_seconds
from bifocal.backbones.networks import small_networks
from pipelines.app.demo import unpack

IMAGES, SIZE = 200, (500, 375)
LOOP = """
import sys, timm, torch
from pathlib import Path
from PIL import Image
model = timm.create_model(sys.argv[1], checkpoint_path=sys.argv[2]).eval()
model.reset_classifier(0)
transform = timm.data.create_transform(**timm.data.resolve_model_data_config(model), is_training=False)
files = sorted(Path(sys.argv[3]).iterdir())
with torch.inference_mode():
    features = [
        model(torch.stack([transform(Image.open(file).convert("RGB")) for file in files[first : first + 32]]))
        for first in range(0, len(files), 32)
    ]
torch.save(torch.cat(features), "features.pt")
"""


def main() -> None:
    """Compare the commands."""
    networks = small_networks(offline=True)
    report, number = Report("peers.folder"), count()
    with TemporaryDirectory() as name:
        folder = Path(name)
        drawings = sorted((unpack(folder / "demo").directory / "images").iterdir())
        (folder / "photos").mkdir()
        for place in range(IMAGES):
            drawing = Image.open(drawings[place % len(drawings)]).convert("RGB")
            drawing.resize(SIZE).save(
                folder / "photos" / f"{place}.jpg", quality=80 + place // len(drawings)
            )
        run = partial(
            subprocess.run,
            cwd=folder,
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        index = [
            sys.executable,
            "-m",
            "bifocal",
            "index",
            "photos",
            "--encoder",
            "small",
            "--folder",
        ]
        loop = [
            sys.executable,
            "-c",
            LOOP,
            "tf_efficientnet_lite2",
            str(networks.backbone),
            "photos",
        ]
        work = f"a folder of {IMAGES} images"
        compare(
            report,
            work,
            "timm",
            lambda: run([*index, f"index-{next(number)}"]),
            lambda: run(loop),
            clock=children_seconds,
        )
    write(report)


if __name__ == "__main__":
    main()
