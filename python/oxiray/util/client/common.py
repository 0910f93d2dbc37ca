"""Classes of Ray Client that libraries check objects against: nothing is an instance of one here."""

from __future__ import annotations

from typing import NoReturn

from oxiray import _missing


class _OfClient:
    def __new__(cls, *args: object, **kwargs: object) -> NoReturn:
        raise NotImplementedError(_missing.advice("util.client"))


class ClientObjectRef(_OfClient):
    """A reference held through Ray Client."""


class ClientActorRef(_OfClient):
    """An actor's identifier held through Ray Client."""


class ClientActorHandle(_OfClient):
    """An actor's handle held through Ray Client."""


class ClientActorClass(_OfClient):
    """An actor's class used through Ray Client."""


class ClientRemoteFunc(_OfClient):
    """A remote function called through Ray Client."""


class ClientRemoteMethod(_OfClient):
    """An actor's method called through Ray Client."""


__getattr__ = _missing.attributes(__name__)
