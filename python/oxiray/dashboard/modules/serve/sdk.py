"""What the command `serve` asks a cluster, over a connection to it: Oxiray has no HTTP API for Ray Serve."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Mapping
from typing import Any

import ray
from oxiray import _core, _job_http, _missing, _session
from ray import serve
from ray.serve._private.api import serve_start
from ray.serve._private.constants import SERVE_CONTROLLER_NAME, SERVE_NAMESPACE
from ray.serve.config import HTTPOptions, gRPCOptions
from ray.serve.schema import ServeDeploySchema, ServeInstanceDetails

#: What the command asks at where nothing is said: the dashboard of a Ray on this machine.
_UNSAID = "http://localhost:8265"


def _is_unsaid(address: str) -> bool:
    """Whether `address` is what the command `serve` has by itself, and nobody gave it: no program and no variable."""
    if address != _UNSAID or "RAY_DASHBOARD_ADDRESS" in os.environ:
        return False
    # The command is made with click, and without click no command runs.
    context = sys.modules["click"].get_current_context(silent=True) if "click" in sys.modules else None
    source = context and context.get_parameter_source("address")
    return source is not None and source.name == "DEFAULT"


def _cluster_of(dashboard: str, cookies: Mapping[str, Any] | None, headers: Mapping[str, Any] | None) -> str:
    """The address of the cluster whose dashboard has this one."""
    site = _job_http.Site(dashboard, _job_http.headers(dashboard, headers, cookies), True)
    session = str(site.told("GET", "/api/version").get("session_name", ""))
    if re.fullmatch(r"session_\w+", session):
        try:
            return str(json.loads((_core.sessions_root() / session / "session.json").read_text())["address"])
        except (OSError, ValueError, KeyError):
            pass
    raise ConnectionError(
        f"{dashboard} answers for a cluster whose head is not on this machine, and Oxiray has no HTTP API for Ray Serve: run the command "
        "on a machine of the cluster, with --address=192.0.2.1:6379 or without, or have the cluster run it: "
        f"`oxiray job submit --address={dashboard} --working-dir=. -- serve deploy FILE`"
    )


class ServeSubmissionClient:
    """Deploys applications to the cluster at `dashboard_head_address`, and tells of them.

    The address is one that `init()` takes, or that of a dashboard (`http://127.0.0.1:8265`) whose cluster has its head on this
    machine; where nothing is said, the cluster that `init()` finds. `cookies` and `headers` are sent to the dashboard. Raises
    `ConnectionError` where there is no cluster, and `ValueError` where this process is connected to another, and for metadata,
    which nothing would have.
    """

    def __init__(
        self,
        dashboard_head_address: str,
        create_cluster_if_needed: bool = False,
        cookies: Mapping[str, Any] | None = None,
        metadata: Mapping[str, Any] | None = None,
        headers: Mapping[str, Any] | None = None,
    ) -> None:
        if metadata:
            raise ValueError("metadata is for a cluster that is made for the request, and none is: leave it out")
        address: str | None = dashboard_head_address
        if dashboard_head_address.startswith(("http://", "https://")):
            is_unsaid = _is_unsaid(dashboard_head_address) and not (cookies or headers)
            address = None if is_unsaid else _cluster_of(dashboard_head_address, cookies, headers)
        elif cookies or headers:
            raise ValueError("cookies and headers are for a dashboard: give its address, such as http://127.0.0.1:8265")
        if not ray.is_initialized():
            ray.init(address=address or (None if create_cluster_if_needed else "auto"), namespace=SERVE_NAMESPACE)
        else:
            _session.ensure_at(address)

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
