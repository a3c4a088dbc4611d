"""Several text encoders as one."""

from collections.abc import Sequence

from torch import Tensor, nn

from bifocal.layers import join
from bifocal.text_encoders.base import TextEncoder


class ConcatenatedTexts(TextEncoder):
    """Vectors of n encoders, concatenated as ``ConcatenatedImages``; with ``own_words``, a token
    has n K values."""

    def __init__(self, members: Sequence[TextEncoder], own_words: bool) -> None:
        inputs = sum(member.input_dim for member in members) if own_words else members[0].input_dim
        super().__init__(inputs, sum(member.dim for member in members))
        self.members, self.own_words = nn.ModuleList(members), own_words

    @property
    def input_shape(self) -> tuple[str | int, ...]:
        shape = self._encoders[0].input_shape
        return (*shape[:-1], self.input_dim) if self.own_words else shape

    def forward(self, values: Tensor, lengths: Tensor) -> Tensor:
        count = len(self.members)
        parts = values.chunk(count, dim=-1) if self.own_words else (values,) * count
        return join(
            [member(part, lengths) for member, part in zip(self.members, parts, strict=True)]
        )

    @property
    def _encoders(self) -> list[TextEncoder]:
        return [member for member in self.members if isinstance(member, TextEncoder)]
