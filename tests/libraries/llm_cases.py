"""Cases of Ray's LLM library that need neither an inference engine nor a GPU: datasets whose rows are requests."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import ray
import ray.data


class Doubles(BaseHTTPRequestHandler):
    """Answers with twice the number that it is sent."""

    def do_POST(self) -> None:  # noqa: N802
        sent = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        text = json.dumps({"twice": 2 * sent["number"], "key": self.headers["Key"]}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: Any) -> None:
        """Nothing is printed."""


def requests_over_http() -> list[Any]:
    from ray.data.llm import HttpRequestProcessorConfig, build_processor

    server = ThreadingHTTPServer(("127.0.0.1", 0), Doubles)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        processor = build_processor(
            HttpRequestProcessorConfig(url=f"http://127.0.0.1:{server.server_port}", headers={"Key": "k"}, qps=50, batch_size=4, concurrency=2),
            preprocess=lambda row: {"payload": {"number": int(row["id"])}},
            postprocess=lambda row: {"twice": row["http_response"]["twice"], "key": row["http_response"]["key"]},
        )
        rows = processor(ray.data.range(20, override_num_blocks=4)).take_all()
    finally:
        server.shutdown()
    return [sorted(row["twice"] for row in rows), sorted({row["key"] for row in rows})]


def requests_to_a_deployment() -> list[Any]:
    from ray import serve
    from ray.data.llm import ServeDeploymentProcessorConfig, build_processor

    @serve.deployment(num_replicas=2, ray_actor_options={"num_cpus": 0.1})
    class Adds:
        async def add(self, request: dict[str, Any]) -> Any:
            if request["number"] == 7:
                raise ValueError("seven is refused")
            yield {"result": request["number"] + 100}

    serve.run(Adds.bind(), name="adds", route_prefix=None)
    try:
        processor = build_processor(
            ServeDeploymentProcessorConfig(
                deployment_name="Adds", app_name="adds", batch_size=4, concurrency=1, should_continue_on_error=True
            ),
            preprocess=lambda row: {"method": "add", "dtype": None, "request_kwargs": {"number": int(row["id"])}},
            postprocess=lambda row: {"result": row["result"]},
        )
        rows = processor(ray.data.range(10, override_num_blocks=2)).take_all()
    finally:
        serve.shutdown()
    found = sorted(row["result"] for row in rows if row.get("result") is not None)
    failed = [row for row in rows if row.get("__inference_error__")]
    return [found, len(failed), ["seven is refused" in str(row["__inference_error__"]) for row in failed]]


def engines_that_are_not_there_are_named() -> list[str]:
    """Needs an environment without vLLM and SGLang, as that of these cases."""
    try:
        import ray.serve.llm  # noqa: F401
    except ImportError as error:
        return [word for word in ("vLLM", "SGLang", "ray[llm]") if word in str(error)]
    return ["imported"]
