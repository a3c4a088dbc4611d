"""Training on the GPU: it learns, resumes, and gives the same gradients in micro-batches; export of
its model."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
import torch.distributed as dist

from bifocal.backbones.classes import Classes
from bifocal.export.encoders import branches, export_encoder
from bifocal.losses import InfoNCELoss, SigmoidLoss, TripletLoss
from bifocal.models import load_model, save_model
from bifocal.models.batch import ImageCaptionPairs, dual_encoder, embed
from bifocal.sorters import PositionwiseLSTMSorter
from bifocal.training import FitOptions, TrainingInputs, TrainingPhase, World, torchrun_world
from bifocal.training.batches import CaptionBatches
from bifocal.training.distributed import _Gather
from bifocal.training.gradients import backward
from bifocal.training.initialization import ClassSentences, class_sentences
from bifocal.training.members import train_members
from bifocal.training.precision import Precision
from bifocal.training.pretraining.sorter import train_sorter
from tests.bifocal.pointing_heads import DEFINITIONS, NAMES
from tests.bifocal.training.initialization.three_classes import build
from tests.bifocal.training.interrupted import Interrupted
from tests.cuda.device import DEVICE, needs_device, relative_error

pytestmark = needs_device
ROWS = torch.tensor([4, 5, 71, 30, 8, 1, 9, 22, 63, 17, 40])
ENCODERS = {"SRUEncoder": {"layers": 2, "dropout": 0.1}, "GRUEncoder": {}}


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("text", ENCODERS)
def test_members_learn(
    inputs: TrainingInputs, new_model: Any, tmp_path: Path, precision: Precision, text: str
) -> None:
    encoder = {"name": text, **ENCODERS[text]}
    trained = train_members(
        lambda seed: new_model(text_encoder=encoder).to(DEVICE),
        lambda: [
            TrainingPhase(
                CaptionBatches(batch_size=16), InfoNCELoss(), epochs=10, learning_rate=0.01
            )
        ],
        inputs,
        members=2,
        checkpoints=tmp_path,
        options=FitOptions(precision=precision, ema_decay=0.5, micro_batch_size=8),
    )
    losses = [row["loss"] for row in trained.history]
    assert losses[9] < losses[0]
    assert losses[19] < losses[10]
    assert trained.model.device.type == DEVICE.type


@pytest.mark.parametrize("text", ENCODERS)
def test_killed_run_resumes(
    train: Any, new_model: Any, kill_at: Any, tmp_path: Path, text: str
) -> None:
    """With equal dropout: the states of both random generators are in the checkpoint."""

    def run(folder: str, tick: Callable[[], None] = lambda: None) -> Any:
        model = new_model(text_encoder={"name": text, **ENCODERS[text]}).to(DEVICE)
        return train(tmp_path / folder, Interrupted(tick, TripletLoss()), model, ema_decay=0.5)

    expected, history = run("whole")
    with pytest.raises(KeyboardInterrupt):
        run("killed", kill_at(8))
    torch.manual_seed(99)
    resumed, again = run("killed")
    assert [row["loss"] for row in again] == pytest.approx(
        [row["loss"] for row in history], rel=1e-3
    )
    assert relative_error(resumed.state_dict().values(), expected.state_dict().values()) < 1e-3


def test_sorter_learns(tmp_path: Path) -> None:
    torch.manual_seed(0)
    sorter = PositionwiseLSTMSorter(length=6, hidden=8, layers=1).to(DEVICE)
    history = train_sorter(
        sorter,
        length=6,
        batch_size=32,
        learning_rate=0.01,
        vectors_per_epoch=500,
        epochs=4,
        patience=9,
        tolerance=0.0,
        checkpoints=tmp_path,
        seed=3,
    )
    assert history[-1]["held_out_l1"] < history[0]["held_out_l1"]
    assert next(sorter.parameters()).device.type == DEVICE.type


def test_micro_batches_have_the_gradients_of_the_batch(
    pairs: ImageCaptionPairs, new_model: Any
) -> None:
    def gradients(micro_batch_size: int | None) -> list[torch.Tensor]:
        model, loss = (
            new_model(text_encoder={"name": "SRUEncoder", "dropout": 0.0}).to(DEVICE).train(),
            SigmoidLoss().to(DEVICE),
        )
        options: dict[str, Any] = {"precision": "float32", "seed": 0, "world": World()}
        backward(
            model, loss, pairs.batch(ROWS).to(DEVICE), micro_batch_size=micro_batch_size, **options
        )
        return [weight.grad for weight in (*model.parameters(), *loss.parameters())]

    assert relative_error(gradients(4), gradients(None)) < 1e-5


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_second_pass_has_the_dropout_of_the_first(
    pairs: ImageCaptionPairs, new_model: Any, precision: Precision
) -> None:
    model, encoded = (
        new_model(text_encoder={"name": "SRUEncoder", "layers": 2, "dropout": 0.5})
        .to(DEVICE)
        .train(),
        [],
    )
    model.text_encoder.register_forward_hook(
        lambda module, arguments, output: encoded.append(output.detach())
    )
    options: dict[str, Any] = {"precision": precision, "seed": 0, "world": World()}
    backward(model, InfoNCELoss(), pairs.batch(ROWS).to(DEVICE), micro_batch_size=4, **options)
    assert len(encoded) == 6
    torch.testing.assert_close(encoded[3:], encoded[:3], rtol=1e-5, atol=1e-6)
    assert not torch.allclose(
        encoded[0], model.embed_captions(pairs.batch(ROWS).to(DEVICE).text)[:4]
    )


def test_class_sentences_set_the_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(class_sentences, "imagenet_classes", lambda: Classes(NAMES, DEFINITIONS))
    world = build(tmp_path)
    ClassSentences().apply(world.model, world.inputs, seed=0)
    expected = {name: tensor.clone() for name, tensor in world.model.state_dict().items()}
    ClassSentences().apply(world.model.to(DEVICE), world.inputs, seed=0)
    assert relative_error(world.model.state_dict().values(), expected.values()) < 1e-4


def test_world_of_one_process_on_the_backend_of_the_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "1")
    with torchrun_world() as (world, device):
        assert (world, device.type) == (World(), "cuda" if torch.cuda.is_available() else "cpu")
    on_gpu = DEVICE.type == "cuda"
    options: dict[str, Any] = {"device_id": torch.device("cuda", 0)} if on_gpu else {}
    dist.init_process_group(
        "nccl" if on_gpu else "gloo",
        init_method=f"file://{tmp_path}/store",
        rank=0,
        world_size=1,
        **options,
    )
    try:
        rows = torch.randn(3, 2, dtype=torch.float64, device=DEVICE, requires_grad=True)
        gathered = _Gather.apply(
            rows, World.current()
        )  # World.gather leaves out the communication of one process
        gathered.square().sum().backward()
        torch.testing.assert_close(gathered, rows.float().double())
        torch.testing.assert_close(rows.grad, 2 * gathered.detach())
        assert World.current().any_rank(True, DEVICE)
        dist.barrier()
    finally:
        dist.destroy_process_group()


def test_trained_model_gives_the_same_vectors_on_the_cpu_and_as_onnx(
    train: Any, new_model: Any, pairs: ImageCaptionPairs, tmp_path: Path
) -> None:
    model, _ = train(tmp_path / "checkpoints", model=new_model().to(DEVICE))
    save_model(tmp_path, model)
    expected = embed(model, pairs)
    loaded = load_model(tmp_path)
    assert loaded.device.type == "cpu"
    assert relative_error(embed(dual_encoder(loaded), pairs), expected) < 1e-4
    (regions,), (text,) = list(pairs.image_batches(256)), list(pairs.caption_batches(256))
    inputs = {"image_encoder": (regions.features.float(), regions.mask), "text_encoder": text}
    for branch, vectors in zip(branches(loaded), expected, strict=True):
        export_encoder(tmp_path, branch, tmp_path / f"{branch}.onnx")
        session = onnxruntime.InferenceSession(
            tmp_path / f"{branch}.onnx", providers=["CPUExecutionProvider"]
        )
        values = zip(session.get_inputs(), inputs[branch], strict=True)
        found = session.run(None, {value.name: tensor.numpy() for value, tensor in values})[0]
        assert relative_error([torch.from_numpy(np.asarray(found))], [vectors]) < 1e-2
