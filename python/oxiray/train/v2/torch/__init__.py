"""Training with PyTorch, under the name of its package in Ray's second version."""
