"""What stands behind the name `ray`: a check, a finder, and a command.

The package `ray` next to this one holds one small module and the type stubs;
everything else under that name is found in `oxiray`.
"""

from __future__ import annotations

#: The version of Ray whose programs run, and the commit it was made from.
RAY_VERSION = "2.60.0"
RAY_COMMIT = "b7f4259e944bf6959f721b106adc366ddfa0c356"
