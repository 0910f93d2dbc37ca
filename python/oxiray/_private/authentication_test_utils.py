"""What tests of programs do with the token that opens a dashboard. For compatibility.

There is no `set_auth_mode`: RAY_AUTH_MODE switches nothing here, and a test that asks for token mode must not run without.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from oxiray import _missing

_VARIABLES = ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")


def reset_auth_token_state() -> None:
    """Has the next request look for its token anew, as each does: no token is kept in this process."""


def set_env_auth_token(token: str) -> None:
    """Sets the token itself, and no file with one."""
    os.environ["RAY_AUTH_TOKEN"] = token
    os.environ.pop("RAY_AUTH_TOKEN_PATH", None)


def set_auth_token_path(token: str | None, path: str | Path) -> None:
    """Names the file with the token, which is written where a token is given, for the owner alone to read."""
    file = Path(path)
    if token is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as opened:
            # One that was there before may have been for others to read.
            os.fchmod(opened.fileno(), 0o600)
            opened.write(token)
    os.environ["RAY_AUTH_TOKEN_PATH"] = str(file)
    os.environ.pop("RAY_AUTH_TOKEN", None)


@contextlib.contextmanager
def authentication_env_guard() -> Iterator[None]:
    """Puts back what the variables about tokens were before the block."""
    before = {name: os.environ.get(name) for name in _VARIABLES}
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


__all__ = ["authentication_env_guard", "reset_auth_token_state", "set_auth_token_path", "set_env_auth_token"]

__getattr__ = _missing.attributes(__name__)
