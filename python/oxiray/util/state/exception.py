"""What asking about the cluster's state may raise."""

from __future__ import annotations


class RayStateApiException(Exception):
    """The question was wrong, or could not be answered."""

    def __init__(self, err_msg: str, *args: object) -> None:
        super().__init__(err_msg, *args)


class ServerUnavailable(RayStateApiException):
    """There is no cluster to ask."""


class DataSourceUnavailable(RayStateApiException):
    """A part of the cluster did not answer."""
