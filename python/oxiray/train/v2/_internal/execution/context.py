"""What callbacks of a training run are given, under Ray's name for it."""

from oxiray.train._configs import RunContext as TrainRunContext

__all__ = ["TrainRunContext"]
