"""The command `ray`: the command `oxiray` under another name, in the words that scripts written for Ray look for."""

from __future__ import annotations

import sys


def main() -> int:
    """Run the command, unless Ray itself lies in the same place."""
    try:
        import ray  # noqa: F401
    except ImportError as refusal:
        print(f"error: {refusal}", file=sys.stderr)
        return 1
    from oxiray._cli import main as run

    run("ray")


if __name__ == "__main__":
    sys.exit(main())
