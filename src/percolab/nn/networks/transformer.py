"""A decoder-only transformer in the layout of GPT-2, for documents of integer tokens."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

from percolab.ground.extras import needing
from percolab.ground.validation import check_integer
from percolab.nn.networks.model import seeded

STD = 0.02  #: Standard deviation of initial weights, as in GPT-2.


def check_tokens(name: str, tokens: torch.Tensor, n_tokens: int) -> None:
    """Raise unless all tokens are from 0 to n_tokens - 1: on a GPU, another token would end the process's use of it."""
    for extreme in torch.aminmax(tokens):
        if not 0 <= int(extreme) < n_tokens:
            raise ValueError(f"{name} must be tokens from 0 to {n_tokens - 1}, got {int(extreme)}")


class Embedding(nn.Module):
    """The residual stream before the first block: a vector per token plus a vector per position."""

    def __init__(self, n_tokens: int, length: int, d_model: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(n_tokens, d_model)
        self.positions = nn.Embedding(length, d_model)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return (n, T, d_model) for tokens (n, T)."""
        if tokens.ndim != 2 or tokens.is_floating_point():
            raise ValueError(f"tokens must be integers (n, T), got {tokens.dtype} of shape {tuple(tokens.shape)}")
        n_positions, length = tokens.shape[1], self.positions.num_embeddings
        if n_positions > length:
            raise ValueError(f"tokens must have at most {length} positions, got {n_positions}")
        return self.tokens(tokens) + self.positions.weight[:n_positions]


class Attention(nn.Module):
    """Causal self-attention: `read` gives queries, keys and values of all heads, `write` maps their result back."""

    def __init__(self, d_model: int, n_heads: int) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.read = nn.Linear(d_model, 3 * d_model)
        self.write = nn.Linear(d_model, d_model)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the update of the residual stream by attention (n, T, d_model)."""
        query, key, value = self.read(x).unflatten(-1, (3, self.n_heads, -1)).transpose(1, 3).unbind(2)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.write(mixed.transpose(1, 2).flatten(2))


class TransformerBlock(nn.Module):
    """x + a + m, with a = attention(norm(x)) and m = W2 gelu(W1 norm(x + a)).

    As in the blocks of a `ResidualMLP`, `hidden` outputs the hidden layer and `delta` the block's update, a + m.
    """

    def __init__(self, d_model: int, n_heads: int, expansion: int) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(d_model)
        self.attention = Attention(d_model, n_heads)
        self.hidden_norm = nn.LayerNorm(d_model)
        self.widen = nn.Linear(d_model, expansion * d_model)
        self.hidden = nn.GELU()
        self.narrow = nn.Linear(expansion * d_model, d_model)
        self.delta = nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the residual stream after this block."""
        attended = self.attention(self.attention_norm(x))
        change = self.narrow(self.hidden(self.widen(self.hidden_norm(x + attended))))
        return x + self.delta(attended + change)


class Transformer(nn.Module):
    """Embedding of tokens and positions, pre-norm blocks, a final norm, and logits of the next token.

    ``input`` outputs the residual stream before the first block, ``blocks.N`` the stream after block N, and
    ``blocks.N.delta`` what block N adds to it. Initial weights are GPT-2's: normal with standard deviation 0.02,
    divided by √(2 n_blocks) where a layer writes into the stream, and biases of 0. Unlike in GPT-2, the matrix of the
    output is not the matrix of the token embedding: what the network reads from a token is then separate from what it
    predicts of it, and initial logits are near 0, so the initial loss is near log n_tokens.

    Parameters
    ----------
    n_tokens
        Number V of tokens.
    length
        Most positions T of a document.
    d_model
        Width of the residual stream.
    n_blocks
        Number of blocks.
    n_heads
        Number of attention heads; it divides d_model.
    expansion
        Width of the hidden layer of a block, in units of d_model.
    seed
        Seed of the initial weights, the same on every device; torch's global generator stays unchanged. None uses the
        global generator.
    """

    def __init__(
        self,
        n_tokens: int,
        length: int,
        d_model: int = 256,
        n_blocks: int = 4,
        n_heads: int = 4,
        expansion: int = 4,
        *,
        seed: int | None = None,
    ) -> None:
        super().__init__()
        self.shape = {
            "n_tokens": n_tokens, "length": length, "d_model": d_model, "n_blocks": n_blocks, "n_heads": n_heads,
            "expansion": expansion,
        }  # fmt: skip
        for name, value in self.shape.items():
            check_integer(name, value, 1)
        if d_model % n_heads:
            raise ValueError(f"n_heads must divide d_model, {d_model}, got {n_heads}")
        with seeded(seed):
            self.input = Embedding(n_tokens, length, d_model)
            self.blocks = nn.ModuleList(TransformerBlock(d_model, n_heads, expansion) for _ in range(n_blocks))
            self.norm = nn.LayerNorm(d_model)
            self.output = nn.Linear(d_model, n_tokens, bias=False)
            for name, module in self.named_modules():
                if isinstance(module, nn.Linear | nn.Embedding):
                    writes = name.endswith(("attention.write", "narrow"))
                    nn.init.normal_(module.weight, std=STD / (2 * n_blocks) ** 0.5 if writes else STD)
                if isinstance(module, nn.Linear) and module.bias is not None:
                    nn.init.zeros_(module.bias)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return logits (n, T, V) of the token after each of tokens (n, T)."""
        x = self.input(tokens)
        for block in self.blocks:
            x = block(x)
        return self.output(self.norm(x))

    def to_transformer_lens(self) -> Any:
        """Return a copy as a `TransformerBridge` of TransformerLens, with equal logits; needs the extra ``sae``.

        Its hook ``blocks.N.hook_out`` is the output of ``blocks.N`` here. The older `HookedTransformer` would do as
        well, but TransformerLens removes it in its version 4.
        """
        with needing("to_transformer_lens needs", "sae"):
            from transformer_lens.config import TransformerBridgeConfig
            from transformer_lens.model_bridge import TransformerBridge
        shape, device = self.shape, self.output.weight.device
        config = TransformerBridgeConfig(
            d_model=shape["d_model"],
            d_head=shape["d_model"] // shape["n_heads"],
            n_heads=shape["n_heads"],
            n_layers=shape["n_blocks"],
            n_ctx=shape["length"],
            d_vocab=shape["n_tokens"],
            d_mlp=shape["expansion"] * shape["d_model"],
            act_fn="gelu",
            eps=self.norm.eps,
            init_weights=False,
        )
        with seeded(0):  # its layers draw weights when they are made; these are replaced
            bridge = TransformerBridge.boot_native(config, device=device)
        bridge.load_state_dict(self._lens_weights())
        return bridge

    def _lens_weights(self) -> dict[str, torch.Tensor]:
        """Return the weights by TransformerLens' names, with separate queries, keys and values."""
        layers: dict[str, Any] = {
            "embed": self.input.tokens, "pos_embed": self.input.positions, "ln_final": self.norm,
            "unembed": self.output,
        }  # fmt: skip
        weights = {"unembed.bias": torch.zeros(self.shape["n_tokens"])}
        for i, block in enumerate(self.blocks):
            theirs = {
                "ln1": "attention_norm", "attn.o": "attention.write", "ln2": "hidden_norm", "mlp.in": "widen",
                "mlp.out": "narrow",
            }  # fmt: skip
            layers |= {f"blocks.{i}.{name}": block.get_submodule(ours) for name, ours in theirs.items()}
            for part, value in block.attention.read.state_dict().items():  # type: ignore[union-attr]
                for letter, values in zip("qkv", value.chunk(3), strict=True):
                    weights[f"blocks.{i}.attn.{letter}.{part}"] = values
        named = ((name, layer.state_dict()) for name, layer in layers.items())
        return weights | {f"{name}.{part}": value for name, values in named for part, value in values.items()}
