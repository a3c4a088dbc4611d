"""Parameters of the phases and of the steps of every training."""

from typing import Annotated, Literal

from pydantic import Field

from runtime.spec import ClassRef, FromRegistry, Params, StrictModel


class PhaseParams(StrictModel):
    """Learning rate of some epochs, and the modules that train in them."""

    epochs: int = Field(ge=1, description="passes over the examples in this phase")
    learning_rate: float = Field(
        gt=0, description="base learning rate, which the schedule multiplies"
    )
    schedule: Annotated[ClassRef, FromRegistry("bifocal.training.schedules")] = Field(
        description="factor of the learning rate; epochs count from the start of the phase"
    )
    frozen_until: dict[str, Annotated[int, Field(ge=0)] | None] = Field(
        description="epochs of this phase during which a module is frozen, null for all: "
        "{text_encoder: 5, backbone: null}; the most specific name wins: "
        "{image_encoder: 8, image_encoder.projection: 0}"
    )
    learning_rate_factors: dict[str, Annotated[float, Field(gt=0)]] = Field(
        default={},
        description="factors of the learning rates of modules: {text_encoder.tower: 0.05}; "
        "the most specific name wins",
    )


class StepParams(Params):
    """Options of the steps of a training, see ``bifocal.training.optimizers.StepOptions``."""

    optimizer: Annotated[ClassRef, FromRegistry("torch.optim", injected=("params", "lr"))] = Field(
        description="class of torch.optim; the phase sets its learning rate"
    )
    precision: Literal["float32", "bfloat16"] = Field(
        description="precision of the matrix products in training; a CPU without bfloat16 "
        "instructions takes float32"
    )
    max_grad_norm: float | None = Field(
        gt=0, description="l2 norm to which gradients are clipped; null for no clipping"
    )
    micro_batch_size: int | None = Field(
        ge=1,
        description="images, and captions, encoded at a time to save memory; the loss still "
        "compares the whole batch; null for the whole batch",
    )
    checkpoint_every_seconds: float = Field(
        ge=0,
        description="least time between two checkpoints inside an epoch, in s: work that a "
        "killed run can lose; 0 for one after every step",
    )
