"""ELMo's language model trained on captions, so that contextual vectors need no download."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, embedding

from bifocal.progress import log_line, track
from bifocal.text.elmo.network import BEGIN_SENTENCE, END_SENTENCE, Elmo

HELD_OUT = 20
"""One sentence in so many is kept for the perplexity."""


class Softmax(nn.Module):
    """The next word from an LSTM's output; the same for both directions, as the token encoder is.

    Args:
        words: the most frequent first. dim: P. samples: of a sampled softmax.
    """

    def __init__(self, words: Sequence[str], dim: int, samples: int) -> None:
        super().__init__()
        marks: list[str | int] = [BEGIN_SENTENCE, END_SENTENCE]
        self.ids = {word: index for index, word in enumerate([*marks, *words], start=1)}
        count = len(self.ids) + 1  # 0 is every other word
        self.samples = samples
        self.weight = nn.Parameter(torch.randn(count, dim) * dim**-0.5)
        self.bias = nn.Parameter(torch.zeros(count))
        ranks = torch.arange(count, dtype=torch.float64)
        self.log_uniform = (torch.log((ranks + 2) / (ranks + 1)) / torch.log(torch.tensor(count + 1.0))).float()

    def loss(self, outputs: Tensor, targets: Tensor, generator: torch.Generator | None) -> Tensor:
        """Mean of -ln p(target): outputs (N, P), targets (N,) -> scalar.

        With a generator, and where the vocabulary is larger than the samples, the softmax is a sampled one: the target
        against words drawn log-uniformly, each less the logarithm of how often it is expected.
        Blanc and Rendle, "Adaptive sampled softmax with kernel based sampling", ICML 2018, section 2.2.
        """
        if generator is None or self.samples >= len(self.bias):
            return cross_entropy(outputs @ self.weight.T + self.bias, targets)
        drawn = torch.multinomial(self.log_uniform, self.samples, replacement=True, generator=generator)
        drawn = drawn.to(targets.device)
        expected = torch.log(self.samples * self.log_uniform).to(outputs.device)
        own = (outputs * embedding(targets, self.weight)).sum(dim=1) + self.bias[targets]
        others = outputs @ self.weight[drawn].T + (self.bias - expected)[drawn]
        others = others.masked_fill(drawn == targets[:, None], -torch.inf)
        logits = torch.cat([own[:, None], others], dim=1)
        return cross_entropy(logits, torch.zeros_like(targets))


def pretrain(
    elmo: Elmo,
    sentences: Sequence[Sequence[str]],
    words: Sequence[str],
    *,
    seed: int,
    epochs: int,
    batch_size: int,
    learning_rate: float,
    samples: int,
) -> list[float]:
    """Train ``elmo`` in place to predict the next word ahead and the previous one back, Adam, gradient norm at most 10.

    Peters et al., NAACL 2018, section 3.1: token encoder and softmax are shared by the two directions.

    Args:
        sentences: lists of tokens; one in 20 is held out.
        words: those that the softmax tells apart, the most frequent first.
        samples: of the sampled softmax; more words than these make it sampled.

    Returns:
        perplexity of the sentences held out, before the first epoch and after each.
    """
    held_out = [list(sentence) for sentence in sentences[::HELD_OUT]]
    training = [list(sentence) for row, sentence in enumerate(sentences) if row % HELD_OUT] or held_out
    softmax = Softmax(words, elmo.options.projection_dim, samples).to(elmo.device)
    parameters = [*elmo.parameters(), *softmax.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=learning_rate)
    generator = torch.Generator().manual_seed(seed)
    history = [perplexity(elmo, softmax, held_out, batch_size)]
    for epoch in range(epochs):
        elmo.train()
        order = torch.randperm(len(training), generator=generator).tolist()
        starts = range(0, len(order), batch_size)
        for start in track(starts, f"pretrain ELMo, epoch {epoch + 1}"):
            batch = [training[row] for row in order[start : start + batch_size]]
            losses = [softmax.loss(*pair, generator) for pair in predictions(elmo, softmax, batch)]
            optimizer.zero_grad(set_to_none=True)
            torch.stack(losses).mean().backward()
            nn.utils.clip_grad_norm_(parameters, 10.0)
            optimizer.step()
        history.append(perplexity(elmo, softmax, held_out, batch_size))
        log_line(f"ELMo, epoch {epoch + 1} of {epochs}: perplexity {history[-1]:.1f}, before training {history[0]:.1f}")
    elmo.eval()
    return history


def predictions(elmo: Elmo, softmax: Softmax, sentences: Sequence[Sequence[str]]) -> Iterator[tuple[Tensor, Tensor]]:
    """For each direction the outputs (N, P) at the true steps, and the words (N,) that come next."""
    symbols, words, lengths = elmo.batch(sentences)
    marked: list[str | int] = [BEGIN_SENTENCE]
    for sentence in sentences:
        marked += [*sentence, END_SENTENCE]
    of_word = torch.tensor([softmax.ids.get(word, 0) for word in dict.fromkeys(marked)], device=words.device)
    ahead, back = elmo(symbols, words, lengths)[-1]
    inside = torch.arange(1, len(words), device=words.device)[:, None] < lengths
    targets = of_word[words]
    yield ahead[:-1][inside], targets[1:][inside]
    yield back[1:][inside], targets[:-1][inside]


@torch.inference_mode()
def perplexity(elmo: Elmo, softmax: Softmax, sentences: Sequence[Sequence[str]], batch_size: int) -> float:
    """exp of the mean of -ln p over the words of ``sentences``, the ends included, and over both directions."""
    elmo.eval()
    total, count = 0.0, 0
    for start in range(0, len(sentences), batch_size):
        for outputs, targets in predictions(elmo, softmax, sentences[start : start + batch_size]):
            total += softmax.loss(outputs, targets, None).item() * len(targets)
            count += len(targets)
    return float(torch.tensor(total / count, dtype=torch.float64).exp())
