"""The model in parts that are compiled where there is a GPU; one block serves all layers.

Each function takes one worker's tensors, or those of K workers stacked along a first dimension; products are batched
ones then. Shapes carry suffixes: B batch, T positions, N = B * T, C width, V vocabulary; "..." is nothing or K.

Products take the type of their matrices: fp32, or half the bits, where torch's autocast would have cast an fp32 matrix
at every use of it. The residual stream, norms, the lookup of embeddings and the cross-entropy stay in fp32.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from tinylm.config import Config
from tinylm.data import IGNORED

BACKEND = "inductor"

Function = Callable[..., Any]


class Regions:
    """The functions below, each through `wrap`."""

    def __init__(self, wrap: Callable[[Function], Function]) -> None:
        self.embed = wrap(embed)
        self.block = wrap(block)
        self.score = wrap(score)


def embed(tokens: Tensor, embedding: Tensor, positions: Tensor) -> Tensor:
    """Embeddings of tokens [..., B, T] and of positions: [..., N, C]."""
    if embedding.dim() == 2:
        return (functional.embedding(tokens, embedding) + positions[: tokens.size(-1)]).flatten(0, 1)
    workers, vocab, width = embedding.shape
    first_row = torch.arange(0, workers * vocab, vocab, device=tokens.device).view(-1, 1, 1)
    x = functional.embedding(tokens + first_row, embedding.view(-1, width))  # the workers' rows, one after the other
    return (x + positions.unsqueeze(1)).flatten(1, 2)


def block(
    x: Tensor,
    delta: Tensor,
    gains: tuple[Tensor, Tensor],
    matrices: tuple[Tensor, Tensor, Tensor, Tensor],
    *,
    positions: int,
    heads: int,
) -> tuple[Tensor, Tensor]:
    """Attention and MLP; attention takes the sequences of all workers at once.

    What the MLP adds to the residual stream [..., N, C] is left for the next block to add, so that its sum and its
    norm are one kernel.

    Args:
        x: residual stream, fp32.
        delta: what is still to be added to it.
        gains: of both norms.
        matrices: qkv, out, up and down.
        positions: of a sequence.
        heads: of the attention.
    """
    qkv, out, up, down = matrices
    x = x + delta
    features = _product(_norm(x, gains[0]), qkv).view(-1, positions, 3, heads, x.size(-1) // heads)
    query, key, value = features.permute(2, 0, 3, 1, 4).unbind(0)
    mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
    x = x + _product(mixed.transpose(1, 2).reshape(x.shape), out)
    hidden = functional.gelu(_product(_norm(x, gains[1]), up), approximate="tanh")
    return x, _product(hidden, down)


def score(x: Tensor, delta: Tensor, gain: Tensor, head: Tensor, targets: Tensor) -> Tensor:
    """Sum of the cross-entropy over the targets [..., B, T] of each worker: [...]."""
    logits = _product(_norm(x + delta, gain), head)
    per_target = functional.cross_entropy(
        logits.float().flatten(0, -2), targets.flatten(), ignore_index=IGNORED, reduction="none"
    )
    return per_target.view(x.shape[:-1]).sum(-1)


def _product(x: Tensor, matrix: Tensor) -> Tensor:
    """Features times the transposed matrix, in its type."""
    x = x.to(matrix.dtype)
    return functional.linear(x, matrix) if matrix.dim() == 2 else torch.bmm(x, matrix.mT)


def _norm(x: Tensor, gain: Tensor) -> Tensor:
    width = (x.size(-1),)
    if gain.dim() == 1:
        return functional.layer_norm(x, width, gain)
    return functional.layer_norm(x, width) * gain.unsqueeze(1)


def make_regions(config: Config, device: torch.device) -> tuple[Regions, str]:
    """The regions as they run on a device, and how, in words.

    Deterministic trainings run them as they stand: which of several kernels the compiler takes may depend on how fast
    each of them was when it tried them.
    """
    if device.type != "cuda" or config.deterministic:
        return Regions(lambda function: function), "eager"
    return Regions(compiled), "compiled: embed, block, score"


def compiled(function: Function) -> Function:
    """For fixed shapes, in one piece: what cannot be compiled raises."""
    return torch.compile(function, fullgraph=True, dynamic=False, backend=BACKEND)
