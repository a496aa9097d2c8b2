"""The model over stacked workers: every parameter carries a leading dimension K, every product is a batched one.

Shapes carry suffixes: K workers, N = batch * positions, T positions, C width, V vocabulary.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch.nn import functional

from tinylm.config import Config
from tinylm.data import IGNORED
from tinylm.model import EMBEDDING, HEAD
from tinylm.optim import FusedAdamW


class Arena:
    """Parameters of all workers side by side in one [K, size] leaf, and so their gradients, too.

    Whatever acts on all parameters alike (norms, clipping, AdamW, consensus) takes one call per arena.
    """

    def __init__(
        self, initial: Mapping[str, Tensor], workers: int, *, weight_decay: float, device: torch.device
    ) -> None:
        flat = torch.cat([tensor.flatten() for tensor in initial.values()]).to(device)
        self._shapes = {name: tensor.shape for name, tensor in initial.items()}
        self._sizes = [tensor.numel() for tensor in initial.values()]
        self.values = flat.repeat(workers, 1).requires_grad_()
        self.optimizer = FusedAdamW(self.values, weight_decay=weight_decay)

    @property
    def gradients(self) -> Tensor:
        """The gradients of the last update [K, size]."""
        if self.values.grad is None:
            raise RuntimeError("no update has run yet, so there are no gradients")
        return self.values.grad

    def views(self, arena: Tensor) -> dict[str, Tensor]:
        """The parts [K, *shape] of a tensor laid out like this arena, by canonical name; differentiable."""
        parts = torch.split(arena, self._sizes, dim=1)
        return {name: part.view(-1, *shape) for (name, shape), part in zip(self._shapes.items(), parts, strict=True)}


def stacked_nats(leaves: Mapping[str, Tensor], tokens: Tensor, targets: Tensor, config: Config) -> Tensor:
    """Sum of the cross-entropy of each worker over its targets [K]; tokens and targets are [K, batch, T]."""
    workers, batch, positions = tokens.shape
    width = config.shape.width
    embedding = leaves[EMBEDDING]
    first_rows = torch.arange(0, workers * config.vocab, config.vocab, device=tokens.device).view(-1, 1, 1)
    x = functional.embedding(tokens + first_rows, embedding.view(-1, width))
    x = (x + leaves["positions.weight"][:, None, :positions]).view(workers, batch * positions, width)
    for layer in range(config.shape.layers):
        prefix = f"blocks.{layer}."
        x = _attention(leaves, prefix, x, positions, config.shape.heads)
        x = _mlp(leaves, prefix, x)
    logits = torch.bmm(_norm(x, leaves["norm.weight"]), leaves.get(HEAD, embedding).mT)
    per_target = functional.cross_entropy(
        logits.float().view(-1, config.vocab), targets.view(-1), ignore_index=IGNORED, reduction="none"
    )
    return per_target.view(workers, -1).sum(dim=1)


def _attention(leaves: Mapping[str, Tensor], prefix: str, x_knc: Tensor, positions: int, heads: int) -> Tensor:
    """Causal self-attention with the workers folded into the batch, added to the residual stream."""
    workers, rows, width = x_knc.shape
    features = torch.bmm(_norm(x_knc, leaves[prefix + "norm1.weight"]), leaves[prefix + "qkv.weight"].mT)
    parts = features.view(-1, positions, 3, heads, width // heads).permute(2, 0, 3, 1, 4)
    query, key, value = parts.unbind(0)
    mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
    mixed = mixed.transpose(1, 2).reshape(workers, rows, width)
    return _add_product(x_knc, mixed, leaves[prefix + "out.weight"])


def _mlp(leaves: Mapping[str, Tensor], prefix: str, x_knc: Tensor) -> Tensor:
    hidden = torch.bmm(_norm(x_knc, leaves[prefix + "norm2.weight"]), leaves[prefix + "up.weight"].mT)
    return _add_product(x_knc, functional.gelu(hidden, approximate="tanh"), leaves[prefix + "down.weight"])


def _add_product(x_knc: Tensor, features: Tensor, weight: Tensor) -> Tensor:
    """Residual plus product: x + features @ weight^T. One kernel in fp32; under autocast the sum must stay fp32."""
    if torch.is_autocast_enabled(x_knc.device.type):
        return x_knc + torch.bmm(features, weight.mT)
    return torch.baddbmm(x_knc, features, weight.mT)


def _norm(x_knc: Tensor, gain_kc: Tensor) -> Tensor:
    width = (x_knc.size(2),)
    if x_knc.size(0) == 1:
        return functional.layer_norm(x_knc, width, gain_kc.view(-1))
    return functional.layer_norm(x_knc, width) * gain_kc.unsqueeze(1)


@torch.no_grad()
def clip_per_worker(gradients: Sequence[Tensor], largest: float) -> None:
    """Scale each worker's gradient [K, size] to at most `largest`, by that worker's own norm.

    As torch.nn.utils.clip_grad_norm_ for one model, which over a stack would take a single norm of all workers.
    """
    norms = torch.stack([torch.linalg.vector_norm(gradient, dim=1) for gradient in gradients])
    norm = torch.linalg.vector_norm(norms, dim=0)
    scale = (largest / (norm + 1e-6)).clamp_(max=1.0).unsqueeze(1)
    for gradient in gradients:
        gradient.mul_(scale)
