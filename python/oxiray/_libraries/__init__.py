"""Ray's own libraries over Oxiray: the distribution `ray` that is made on the user's machine, and how its files are loaded.

Invariants:
1. Nothing of Ray's is in this package: the files come from the official wheel, which pip fetches and a hash names.
2. A module of Oxiray's goes before the wheel's of the same name, unless `contents` lists it as one to be replaced.
3. What is not installed says how to install it.
"""
