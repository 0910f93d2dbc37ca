"""What libraries ask of Ray Client before they use it: whether it is in use, which it never is here.

Ray deprecates the client; programs connect with `init(address="host:port")` instead.
"""

from __future__ import annotations

from oxiray import _missing


class RayAPIStub:
    """Ray Client as seen by libraries: not connected."""

    def is_connected(self) -> bool:
        """Whether this process goes through Ray Client: never."""
        return False

    def is_default(self) -> bool:
        """Whether the connection is the process's own one."""
        return False

    def __getattr__(self, name: str) -> object:
        raise AttributeError(_missing.advice("util.client") + f" (`{name}` was asked for.)", name=name, obj=self)


ray = RayAPIStub()


def num_connected_contexts() -> int:
    """How many connections of Ray Client there are: none."""
    return 0


__getattr__ = _missing.attributes(__name__)
