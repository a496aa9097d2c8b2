"""The GPT of the reference: ordinary modules, one object per model.

Pre-norm blocks, learned positions, no biases; the output head may share the token embedding. Shapes carry suffixes:
B batch, T positions, C width, H heads, V vocabulary.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from tinylm.config import Config
from tinylm.data import IGNORED, mixed_seed

EMBEDDING = "tokens.weight"
HEAD = "head.weight"
INIT_STD = 0.02
INIT_STREAM = 1


class Block(nn.Module):
    """Attention and MLP, each behind a LayerNorm."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width, bias=False)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.norm2 = nn.LayerNorm(width, bias=False)
        self.up = nn.Linear(width, 4 * width, bias=False)
        self.down = nn.Linear(4 * width, width, bias=False)

    def attention(self, x_btc: Tensor) -> Tensor:
        """Causal self-attention of normalised features."""
        batch, positions, width = x_btc.shape
        shape = (batch, positions, self.heads, width // self.heads)
        query, key, value = (part.view(shape).transpose(1, 2) for part in self.qkv(x_btc).split(width, dim=2))
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(batch, positions, width))  # type: ignore[no-any-return]  # nn.Linear is untyped

    def forward(self, x_btc: Tensor) -> Tensor:
        """[B, T, C] -> [B, T, C]."""
        x_btc = x_btc + self.attention(self.norm1(x_btc))
        hidden = functional.gelu(self.up(self.norm2(x_btc)), approximate="tanh")
        return x_btc + self.down(hidden)  # type: ignore[no-any-return]  # nn.Linear is untyped


class GPT(nn.Module):
    """A decoder-only transformer over token ids."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        shape = config.shape
        self.tokens = nn.Embedding(config.vocab, shape.width)
        self.positions = nn.Embedding(config.context, shape.width)
        self.blocks = nn.ModuleList(Block(shape.width, shape.heads) for _ in range(shape.layers))
        self.norm = nn.LayerNorm(shape.width, bias=False)
        self.head = nn.Linear(shape.width, config.vocab, bias=False)
        if config.tied:
            self.head.weight = self.tokens.weight

    def forward(self, tokens_bt: Tensor) -> Tensor:
        """Token ids [B, T] -> logits [B, T, V]."""
        x_btc = self.tokens(tokens_bt) + self.positions.weight[: tokens_bt.size(1)]
        for block in self.blocks:
            x_btc = block(x_btc)
        return self.head(self.norm(x_btc))  # type: ignore[no-any-return]  # as above


def nats(logits_btv: Tensor, targets_bt: Tensor) -> Tensor:
    """Sum of the cross-entropy over all targets that are not IGNORED, in fp32."""
    flat = logits_btv.float().flatten(0, -2)
    return functional.cross_entropy(flat, targets_bt.flatten(), ignore_index=IGNORED, reduction="sum")


def decays(name: str) -> bool:
    """Whether weight decay applies. By name: the number of dimensions differs between the backends."""
    return name.startswith("blocks.") and ".norm" not in name


def initial_state(config: Config, seed: int) -> dict[str, Tensor]:
    """Canonical names and fp32 initial values on the CPU; every worker starts from the same ones."""
    generator = torch.Generator().manual_seed(mixed_seed(seed, INIT_STREAM))
    layers = config.shape.layers
    return {name: _initial(name, shape, layers, generator) for name, shape in parameter_shapes(config).items()}


def parameter_shapes(config: Config) -> dict[str, tuple[int, ...]]:
    """The canonical names in the order of GPT.named_parameters(), without building a model. A shared head has none."""
    width = config.shape.width
    block = {
        "norm1": (width,),
        "qkv": (3 * width, width),
        "out": (width, width),
        "norm2": (width,),
        "up": (4 * width, width),
        "down": (width, 4 * width),
    }
    blocks = {f"blocks.{i}.{name}.weight": shape for i in range(config.shape.layers) for name, shape in block.items()}
    embeddings = {EMBEDDING: (config.vocab, width), "positions.weight": (config.context, width)}
    head = {} if config.tied else {HEAD: (config.vocab, width)}
    return {**embeddings, **blocks, "norm.weight": (width,), **head}


def _initial(name: str, shape: tuple[int, ...], layers: int, generator: torch.Generator) -> Tensor:
    if "norm" in name:
        return torch.ones(shape)
    # The layers that write to the residual stream start smaller, since 2 * layers of them add up.
    is_residual = name.endswith(("out.weight", "down.weight"))
    std = INIT_STD / math.sqrt(2 * layers) if is_residual else INIT_STD
    return torch.randn(shape, generator=generator) * std
