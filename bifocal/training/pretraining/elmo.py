"""Train ELMo's language model on captions: contextual word vectors without downloaded weights."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Generator, Tensor, nn
from torch.nn.functional import cross_entropy, embedding

from bifocal.onnx.text.captions import BEGIN_SENTENCE, END_SENTENCE
from bifocal.text.elmo import Elmo
from bifocal.training.checkpoints import RunState
from bifocal.training.loop import TrainingTask, run_epochs

HELD_OUT_EVERY = 20
"""One sentence in so many is held out to measure the perplexity."""
MAX_GRAD_NORM = 10.0

Sentences = Sequence[Sequence[str]]


class SampledSoftmax(nn.Module):
    """Word probabilities from the outputs (N, P) of an LSTM, shared by both directions.

    Blanc and Rendle, "Adaptive sampled softmax with kernel based sampling", ICML 2018, section 2.2.
    The most frequent words come first, because negatives are drawn log-uniformly; id 0 stands for
    all other words.
    """

    def __init__(self, words: Sequence[str], dim: int, samples: int) -> None:
        super().__init__()
        marks: list[str | int] = [BEGIN_SENTENCE, END_SENTENCE]
        self.ids = {word: index for index, word in enumerate([*marks, *words], start=1)}
        count = len(self.ids) + 1
        self.samples = samples
        self.weight = nn.Parameter(torch.randn(count, dim) * dim**-0.5)
        self.bias = nn.Parameter(torch.zeros(count))
        ranks = torch.arange(count, dtype=torch.float64)
        self.log_uniform = (
            torch.log((ranks + 2) / (ranks + 1)) / torch.log(torch.tensor(count + 1.0))
        ).float()

    def loss(self, outputs: Tensor, targets: Tensor, generator: Generator | None) -> Tensor:
        """Return the mean of -ln p(target) for outputs (N, P); without ``generator``, by the full
        softmax."""
        if generator is None or self.samples >= len(self.bias):
            return cross_entropy(outputs @ self.weight.T + self.bias, targets)
        drawn = torch.multinomial(
            self.log_uniform, self.samples, replacement=True, generator=generator
        )
        drawn = drawn.to(targets.device)
        # Subtract the log of the expected count, so that frequent negatives are not counted too
        # often.
        expected = torch.log(self.samples * self.log_uniform).to(outputs.device)
        positive = (outputs * embedding(targets, self.weight)).sum(dim=1) + self.bias[targets]
        negatives = outputs @ self.weight[drawn].T + (self.bias - expected)[drawn]
        negatives = negatives.masked_fill(drawn == targets[:, None], -torch.inf)
        logits = torch.cat([positive[:, None], negatives], dim=1)
        return cross_entropy(logits, torch.zeros_like(targets))


def pretrain_elmo(
    elmo: Elmo,
    sentences: Sentences,
    words: Sequence[str],
    *,
    epochs: int,
    batch_size: int,
    learning_rate: float,
    samples: int,
    checkpoints: Path,
    seed: int,
) -> list[float]:
    """Train ``elmo`` in place with Adam to predict the next word forwards and the previous word
    backwards.

    Peters et al., NAACL 2018, section 3.1: both directions share the token encoder and the softmax
    over ``words``, the most frequent first. Return the perplexity of the held-out sentences before
    the first epoch and after each.
    """
    held_out = sentences[::HELD_OUT_EVERY]
    train = [sentence for row, sentence in enumerate(sentences) if row % HELD_OUT_EVERY] or held_out
    softmax = SampledSoftmax(words, elmo.options.projection_dim, samples).to(elmo.device)
    # Before run_epochs, which may load a checkpoint.
    untrained = perplexity(elmo, softmax, held_out, batch_size)
    optimizer = torch.optim.Adam([*elmo.parameters(), *softmax.parameters()], lr=learning_rate)
    state = RunState(checkpoints, {"elmo": elmo, "softmax": softmax}, optimizer)
    task = _ElmoTask(elmo, softmax, train, held_out, batch_size, seed)
    history = run_epochs(
        task, state, epochs=epochs, learning_rate=learning_rate, max_grad_norm=MAX_GRAD_NORM
    )
    elmo.eval()
    return [untrained, *(row["perplexity"] for row in history)]


@dataclass
class _ElmoTask(TrainingTask[Sentences]):
    elmo: Elmo
    softmax: SampledSoftmax
    train: Sentences
    held_out: Sentences
    batch_size: int
    seed: int

    name = "ELMo"

    def batches(self, epoch: int, first_step: int) -> tuple[int, Iterator[Sentences]]:
        generator = Generator().manual_seed(self.seed * 10_007 + epoch)
        order = torch.randperm(len(self.train), generator=generator).tolist()
        starts = range(0, len(order), self.batch_size)
        rows = (order[start : start + self.batch_size] for start in starts[first_step:])
        return len(starts), ([self.train[row] for row in batch] for batch in rows)

    def start_epoch(self, epoch: int) -> None:
        self.elmo.train()

    def backward(self, batch: Sentences, epoch: int, step: int) -> Tensor:
        pairs = predictions(self.elmo, self.softmax, batch)
        loss = torch.stack(
            [self.softmax.loss(*pair, torch.default_generator) for pair in pairs]
        ).mean()
        loss.backward()
        return loss.detach()

    def validate(self) -> dict[str, float]:
        return {"perplexity": perplexity(self.elmo, self.softmax, self.held_out, self.batch_size)}

    def size(self, batch: Sentences) -> int:
        return len(batch)


def predictions(
    elmo: Elmo, softmax: SampledSoftmax, sentences: Sentences
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield for each direction the outputs (N, P) at the words of the sentences and the ids (N,) of
    the next words."""
    symbols, words, lengths = elmo.batch(sentences)
    marked: list[str | int] = [BEGIN_SENTENCE]
    for sentence in sentences:
        marked += [*sentence, END_SENTENCE]
    target_ids = torch.tensor(
        [softmax.ids.get(word, 0) for word in dict.fromkeys(marked)], device=words.device
    )
    forward, backward = elmo(symbols, words, lengths)[-1]
    inside = torch.arange(1, len(words), device=words.device)[:, None] < lengths
    targets = target_ids[words]
    yield forward[:-1][inside], targets[1:][inside]
    yield backward[1:][inside], targets[:-1][inside]


@torch.inference_mode()
def perplexity(elmo: Elmo, softmax: SampledSoftmax, sentences: Sentences, batch_size: int) -> float:
    """Return exp of the mean of -ln p over all words, the sentence ends included, and both
    directions."""
    elmo.eval()
    total, count = 0.0, 0
    for start in range(0, len(sentences), batch_size):
        for outputs, targets in predictions(elmo, softmax, sentences[start : start + batch_size]):
            total += softmax.loss(outputs, targets, None).item() * len(targets)
            count += len(targets)
    return float(torch.tensor(total / count, dtype=torch.float64).exp())
