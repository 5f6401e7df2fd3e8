"""Tokens for a model: an embedding and a small transformer, its outputs averaged over a text's tokens or the last."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from refprotofl.experiment import Model
from refprotofl.inputs.tokens import FIRST, PADDING
from refprotofl.models.input_model import FORWARD_BATCH, Backbone, InputModel

WIDTH, HEADS, LAYERS, HIDDEN = 64, 2, 2, 128
ATTENTION = 1 << 24  # numbers in a layer's attention at a time, outside of training
FAR = -1e9  # logit of padding: a text without tokens still has finite numbers


class TokensModel(InputModel):
    prepared = torch.int64

    def constants(self) -> tuple[Tensor, ...]:
        return ()

    def prepare(self, inputs: Tensor, *constants: Tensor) -> Tensor:
        return inputs

    def backbones(self, table: Model) -> Mapping[str, Callable[[], Backbone]]:
        return {"transformer": lambda: (Transformer(*self.arguments(), table.pool), WIDTH)}

    def arguments(self) -> tuple[int, int]:
        """Return the length of a text and the number of tokens, the two reserved ones included."""
        return self.input.shape[0], FIRST + len(self.input.vocabulary)

    @property
    def forward_batch(self) -> int:
        return max(1, min(FORWARD_BATCH, ATTENTION // (HEADS * self.input.shape[0] ** 2)))


class Transformer(nn.Module):
    """Embedding, learned positions, and encoder layers with their norm first (Vaswani et al. 2017)."""

    def __init__(self, length: int, tokens: int, pool: str = "mean") -> None:
        super().__init__()
        self.pool = pool
        self.tokens = nn.Embedding(tokens, WIDTH)
        self.positions = nn.Parameter(0.02 * torch.randn(length, WIDTH))
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)
        with torch.no_grad():
            self.tokens.weight.mul_(WIDTH**-0.5)

    def forward(self, inputs: Tensor) -> Tensor:
        """Map tokens (B, T) to (B, width)."""
        there = inputs != PADDING  # (B, T)
        hidden = self.tokens(inputs) + self.positions  # (B, T, width)
        for layer in self.layers:
            hidden = layer(hidden, there)
        if self.pool == "last":
            last = (there.sum(dim=1) - 1).clamp(min=0)  # (B,); padding follows the text
            output: Tensor = self.norm(hidden.gather(1, last[:, None, None].expand(-1, 1, WIDTH)).squeeze(1))
            return output
        kept = there.unsqueeze(2).to(hidden.dtype)
        mean: Tensor = (self.norm(hidden) * kept).sum(dim=1) / kept.sum(dim=1).clamp(min=1)
        return mean


class Layer(nn.Module):
    """Self-attention over a text's tokens, then two fully connected layers for each token."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.mix, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.wide, self.narrow = nn.Linear(WIDTH, HIDDEN), nn.Linear(HIDDEN, WIDTH)

    def forward(self, hidden: Tensor, there: Tensor) -> Tensor:
        hidden = hidden + self.out(self._attend(self.first(hidden), there))
        moved: Tensor = hidden + self.narrow(torch.relu(self.wide(self.second(hidden))))
        return moved

    def _attend(self, hidden: Tensor, there: Tensor) -> Tensor:
        """Return the mean of the tokens' values by attention, (B, T, width); padding is not attended to."""
        parts = self.mix(hidden).unflatten(2, (3, HEADS, WIDTH // HEADS)).permute(2, 0, 3, 1, 4)  # (3, B, heads, T, w)
        query, key, value = parts[0], parts[1], parts[2]
        logits = query @ key.transpose(2, 3) * (WIDTH // HEADS) ** -0.5  # (B, heads, T, T)
        shares = logits.masked_fill(~there[:, None, None, :], FAR).softmax(dim=3)
        mixed: Tensor = (shares @ value).transpose(1, 2).flatten(2)
        return mixed
