"""Sentences of concurrent requests are encoded together: one run of the text encoder serves all that wait."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor

from bifocal.onnx.sessions import Array

Encode = Callable[[Sequence[str]], Array]


class SentenceBatcher:
    """Encoder of concurrent sentences: requests that arrive while a batch is encoded form the next one."""

    def __init__(self, encode: Encode, executor: Executor, max_sentences: int = 64) -> None:
        self._encode, self._executor, self._max = encode, executor, max_sentences
        self._waiting: list[tuple[list[str], asyncio.Future[Array]]] = []
        self._task: asyncio.Task[None] | None = None

    async def embed(self, sentences: Sequence[str]) -> Array:
        """Return the vectors (B, d) of the B sentences of a request."""
        future: asyncio.Future[Array] = asyncio.get_running_loop().create_future()
        self._waiting.append((list(sentences), future))
        if self._task is None:
            self._task = asyncio.create_task(self._run())
        return await future

    async def _run(self) -> None:
        while self._waiting:
            batch = self._take()
            try:
                await self._answer(batch)
            except Exception:  # one request may be the cause: encode each by itself
                for entry in batch:
                    try:
                        await self._answer([entry])
                    except Exception as error:
                        if not entry[1].done():
                            entry[1].set_exception(error)
        self._task = None

    def _take(self) -> list[tuple[list[str], asyncio.Future[Array]]]:
        count = total = 0
        for sentences, _ in self._waiting:
            total += len(sentences)
            if count and total > self._max:
                break
            count += 1
        batch, self._waiting = self._waiting[:count], self._waiting[count:]
        return batch

    async def _answer(self, batch: Sequence[tuple[list[str], asyncio.Future[Array]]]) -> None:
        different = list(dict.fromkeys(sentence for sentences, _ in batch for sentence in sentences))
        vectors = await asyncio.get_running_loop().run_in_executor(self._executor, self._encode, different)
        row = {sentence: number for number, sentence in enumerate(different)}
        for sentences, future in batch:
            if not future.done():  # the client may have gone
                future.set_result(vectors[[row[sentence] for sentence in sentences]])
