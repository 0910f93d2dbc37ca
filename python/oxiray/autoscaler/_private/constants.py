"""How commands of Ray's libraries write lines of a log."""

from oxiray import _missing

LOGGER_FORMAT = "%(asctime)s\t%(levelname)s %(filename)s:%(lineno)s -- %(message)s"

__all__ = ["LOGGER_FORMAT"]

__getattr__ = _missing.attributes(__name__)
