"""cloudpickle, with the files that functions are written in.

From version 3.1.3 on, cloudpickle writes `<dynamic-code>` in the place of a function's file, so that a traceback or a stack
of a worker shows no line of the program. What Oxiray sends keeps the file, as with every earlier version and as with Ray.
"""

from __future__ import annotations

import collections
import io
import types
from typing import Any

import cloudpickle

#: Where `types.CodeType` takes the name of the file, among its positional arguments.
_FILE_NAME = 10


def _reduce_code(code: types.CodeType) -> tuple[Any, ...]:
    make, arguments = cloudpickle.Pickler.dispatch_table[types.CodeType](code)
    return make, (*arguments[:_FILE_NAME], code.co_filename, *arguments[_FILE_NAME + 1 :])


class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Writes a value to a file, by value what another process could not import."""

    dispatch_table = collections.ChainMap({types.CodeType: _reduce_code}, *cloudpickle.Pickler.dispatch_table.maps)


def dumps(value: Any) -> bytes:
    """`value` as bytes, which `pickle.loads` reads. Raises what pickling it raises."""
    file = io.BytesIO()
    Pickler(file).dump(value)
    return file.getvalue()
