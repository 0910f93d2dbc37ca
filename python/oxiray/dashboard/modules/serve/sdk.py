"""What the command `serve` asks a cluster, over a connection to it: Oxiray has no HTTP API for Ray Serve."""

from __future__ import annotations

from typing import Any

import ray
from oxiray import _missing
from ray import serve
from ray.serve._private.api import serve_start
from ray.serve._private.constants import SERVE_CONTROLLER_NAME, SERVE_NAMESPACE
from ray.serve.config import HTTPOptions, gRPCOptions
from ray.serve.schema import ServeDeploySchema, ServeInstanceDetails

#: What the command asks at where nothing is said: the dashboard of a Ray on this machine.
_UNSAID = "http://localhost:8265"


class ServeSubmissionClient:
    """Deploys applications to the cluster at `dashboard_head_address`, and tells of them.

    The address is one that `init()` takes; where nothing is said, the cluster that `init()` finds. Raises `ValueError`
    for one of HTTP, and `ConnectionError` where there is no cluster.
    """

    def __init__(self, dashboard_head_address: str, *_: Any, **__: Any) -> None:
        address = "auto" if dashboard_head_address == _UNSAID else dashboard_head_address
        if address.startswith(("http://", "https://")):
            raise ValueError(
                f"{address} is an address of HTTP, and Oxiray has no HTTP API for Ray Serve: name the cluster's address instead, "
                "as in --address=192.0.2.1:6379, or leave it out on a machine of the cluster"
            )
        if not ray.is_initialized():
            ray.init(address=address, namespace=SERVE_NAMESPACE)

    def get_serve_details(self) -> dict[str, Any]:
        """The applications and their state, as a dictionary of `ServeInstanceDetails`."""
        try:
            controller = ray.get_actor(SERVE_CONTROLLER_NAME, namespace=SERVE_NAMESPACE)
        except ValueError:
            empty: dict[str, Any] = ServeInstanceDetails.get_empty_schema_dict()
            return empty
        found: dict[str, Any] = ray.get(controller.get_serve_instance_details.remote())
        return found

    def deploy_applications(self, config: dict[str, Any]) -> None:
        """Has the cluster run the applications of a config file, a dictionary of `ServeDeploySchema`, and no others.

        Raises what pydantic raises for one that is wrong.
        """
        wanted = ServeDeploySchema.model_validate(config)
        http = {"location": wanted.proxy_location, **wanted.http_options.model_dump(exclude_unset=True)}
        client = serve_start(
            http_options=HTTPOptions.model_validate(http),
            grpc_options=gRPCOptions(**wanted.grpc_options.model_dump(exclude_unset=True)),
            global_logging_config=wanted.logging_config,
            controller_options=wanted.controller_options,
        )
        if wanted.logging_config:
            client.update_global_logging_config(wanted.logging_config)
        client.deploy_apps(wanted)

    def delete_applications(self) -> None:
        """Ends all applications, and Ray Serve with them."""
        serve.shutdown()


__all__ = ["ServeSubmissionClient"]

__getattr__ = _missing.attributes(__name__)
