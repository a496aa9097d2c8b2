"""Width, layers and heads of every model size; the one place that knows them."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """The shape of a model.

    Attributes:
        width: features of the residual stream.
        layers: number of blocks.
        heads: attention heads; divides width.
    """

    width: int
    layers: int
    heads: int


SIZES: dict[str, Size] = {
    # For a CPU: seconds to a visible fall of the loss.
    "micro": Size(width=16, layers=2, heads=2),
    "tiny": Size(width=32, layers=2, heads=2),
    "mini": Size(width=64, layers=4, heads=4),
    "small": Size(width=128, layers=4, heads=4),
    # For a GPU; the names count parameters with a vocabulary of 16,384.
    "20m": Size(width=384, layers=8, heads=6),
    "50m": Size(width=576, layers=10, heads=9),
    "90m": Size(width=768, layers=11, heads=12),
}
