"""Ray Train's second version under its own name: what `oxiray.train` is."""
