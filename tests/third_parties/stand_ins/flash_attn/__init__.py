"""In place of FlashAttention, which OpenRLHF imports."""
