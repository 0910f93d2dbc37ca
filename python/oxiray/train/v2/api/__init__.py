"""Modules of `ray.train.v2.api`, for programs that import from them."""
