"""In place of FlashAttention's functions."""
