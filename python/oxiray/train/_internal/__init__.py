"""Modules of Ray Train's first version that other libraries import."""
