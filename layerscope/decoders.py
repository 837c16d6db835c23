"""The decoder of an encoder-decoder as a model of its own, which reads a text as the encoder does."""

from __future__ import annotations

from typing import Any


def decoder_of(model: Any) -> Any:
    """A module that runs the whole of ``model`` on ``input_ids``, whose blocks are those of the decoder.

    Encoder and decoder get the same tokens; the decoder attends to the encoder's states of the real ones.

    Args:
        model: the base model of an encoder-decoder, as ``T5Model``; it is not changed.
    """
    import torch

    class DecoderOf(torch.nn.Module):
        blocks_within = "whole.decoder"

        def __init__(self) -> None:
            super().__init__()
            self.whole = model
            self.config = model.config

        @property
        def dtype(self) -> torch.dtype:
            return model.dtype  # type: ignore[no-any-return]

        def get_input_embeddings(self) -> torch.nn.Module:
            return model.get_input_embeddings()  # type: ignore[no-any-return]

        def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> Any:
            return self.whole(
                input_ids=input_ids,
                attention_mask=attention_mask,
                decoder_input_ids=input_ids,
                decoder_attention_mask=attention_mask,
                use_cache=False,
            )

    DecoderOf.__name__ = DecoderOf.__qualname__ = f"{type(model).__name__}Decoder"
    return DecoderOf()
