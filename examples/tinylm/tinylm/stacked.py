"""Where the parameters of all workers live, and the parts of them that a microbatch is differentiated by.

Arenas hold parameters side by side, those of a worker in one row, so that whatever acts on all parameters alike (norms,
AdamW, consensus) takes one call per arena. A stack is some of the workers, which run through a microbatch together.
"""

from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor

from tinylm.config import Config
from tinylm.model import EMBEDDING, HEAD, decays
from tinylm.regions import Regions


class Arena:
    """Parameters of all workers in fp32, their gradients and moments, and a shadow of the parameters in fewer bits.

    Attributes:
        values: fp32 [workers, size].
        gradients: fp32 [workers, size].
        firsts: AdamW's first moments, fp32 [workers, size].
        seconds: its second moments, likewise.
        shadow: values in the type of matrix products; in fp32 values themselves.
        weight_decay: of all parameters here.
    """

    def __init__(
        self,
        initial: Mapping[str, Tensor],
        workers: int,
        *,
        weight_decay: float,
        device: torch.device,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        flat = torch.cat([tensor.flatten() for tensor in initial.values()]).to(device)
        self._shapes = {name: tensor.shape for name, tensor in initial.items()}
        self._sizes = [tensor.numel() for tensor in initial.values()]
        self.values = flat.repeat(workers, 1)
        self.gradients, self.firsts, self.seconds = (torch.zeros_like(self.values) for _ in range(3))
        self.shadow = self.values.to(dtype)
        self.weight_decay = weight_decay

    def refresh(self) -> None:
        """Let the shadow be what the parameters are now."""
        if self.shadow is not self.values:
            self.shadow.copy_(self.values)

    def tensors(self) -> list[Tensor]:
        """Everything here; it stays where it is."""
        return [self.values, self.gradients, self.firsts, self.seconds, self.shadow]

    def views(self, arena: Tensor) -> dict[str, Tensor]:
        """The parts [..., *shape] of a tensor [..., size] laid out like this arena, by name; differentiable."""
        parts = torch.split(arena, self._sizes, dim=-1)
        leading = arena.shape[:-1]
        return {
            name: part.view(*leading, *shape) for (name, shape), part in zip(self._shapes.items(), parts, strict=True)
        }


class Arenas:
    """All parameters: matrices of attention and MLP, gains and positions, the embedding, and a head of its own."""

    def __init__(
        self, initial: Mapping[str, Tensor], config: Config, *, device: torch.device, dtype: torch.dtype
    ) -> None:
        def arena(names: Sequence[str], *, weight_decay: float = 0.0, dtype: torch.dtype = torch.float32) -> Arena:
            chosen = {name: initial[name] for name in names}
            return Arena(chosen, config.workers, weight_decay=weight_decay, device=device, dtype=dtype)

        # A lookup across workers needs the rows of all workers without gaps, so the embedding is alone.
        alone = {EMBEDDING, HEAD}
        self.matrices = arena(list(filter(decays, initial)), weight_decay=config.weight_decay, dtype=dtype)
        self.plain = arena([name for name in initial if not decays(name) and name not in alone])
        self.embedding = arena([EMBEDDING], dtype=dtype if config.tied else torch.float32)
        self.head = self.embedding if config.tied else arena([HEAD], dtype=dtype)

    def __iter__(self) -> Iterator[Arena]:
        """Each once."""
        yield from (self.matrices, self.plain, self.embedding)
        if self.head is not self.embedding:
            yield self.head


class Stack:
    """Some workers that run side by side; what makes their gradients.

    Attributes:
        workers: which: several as a slice, and one, whose tensors have no dimension for workers, as its number.
    """

    def __init__(self, arenas: Arenas, workers: slice | int, config: Config, *, batch: int) -> None:
        self.workers = workers
        self._config = config
        # The lookup reads the embedding in fp32, the head its shadow: two leaves, and one place for their gradients.
        used = [
            (arenas.matrices, arenas.matrices.shadow),
            (arenas.plain, arenas.plain.values),
            (arenas.embedding, arenas.embedding.values),
            (arenas.head, arenas.head.shadow),
        ]
        self._arenas = [arena for arena, _ in used]
        self._leaves = [values[workers].detach().requires_grad_() for _, values in used]
        self._totals = [arena.gradients[workers] for arena in self._arenas]
        self._nothing = self._empty_delta(batch * config.context)

    def backward(self, regions: Regions, tokens: Tensor, targets: Tensor, factors: Tensor, *, is_first: bool) -> Tensor:
        """Put the gradients of the nats of each worker, times its factor, into the arenas; the nats.

        Workers share no parameters: the sum over all of them gives each its own gradient.

        Args:
            regions: what to run.
            tokens: of all workers [workers, batch, context].
            targets: likewise.
            factors: likewise [workers].
            is_first: whether the arenas' gradients are of an earlier update, rather than to be added to.
        """
        nats = self._nats(regions, tokens[self.workers], targets[self.workers])
        gradients = torch.autograd.grad((nats * factors[self.workers]).sum(), self._leaves)
        seen: set[Arena] = set()
        for arena, total, gradient in zip(self._arenas, self._totals, gradients, strict=True):
            if is_first and arena not in seen:
                total.copy_(gradient)
            else:
                total.add_(gradient)
            seen.add(arena)
        return nats.detach()

    def _nats(self, regions: Regions, tokens: Tensor, targets: Tensor) -> Tensor:
        # To differentiate through one split of an arena puts all gradients together in one kernel.
        matrices, plain, embedding, head = (
            arena.views(leaf) for arena, leaf in zip(self._arenas, self._leaves, strict=True)
        )
        x, delta = regions.embed(tokens, embedding[EMBEDDING], plain["positions.weight"]), self._nothing
        positions, heads = self._config.context, self._config.shape.heads
        for layer in range(self._config.shape.layers):
            gains = tuple(plain[f"blocks.{layer}.{name}.weight"] for name in ("norm1", "norm2"))
            weights = tuple(matrices[f"blocks.{layer}.{name}.weight"] for name in ("qkv", "out", "up", "down"))
            x, delta = regions.block(x, delta, gains, weights, positions=positions, heads=heads)
        (head_weight,) = head.values()
        nats: Tensor = regions.score(x, delta, plain["norm.weight"], head_weight, targets)
        return nats

    def _empty_delta(self, rows: int) -> Tensor:
        """What the first block adds to the embeddings: as for all others, a gradient of it is asked for."""
        matrices = self._leaves[0]
        shape = (*matrices.shape[:-1], rows, self._config.shape.width)
        return torch.zeros(shape, dtype=matrices.dtype, device=matrices.device, requires_grad=True)


def divide(workers: int, rows: int, most_rows: int) -> list[slice | int]:
    """All workers in one stack, or each alone where a microbatch of one has more rows than `most_rows`."""
    if workers > 1 and rows <= most_rows:
        return [slice(0, workers)]
    return list(range(workers))
