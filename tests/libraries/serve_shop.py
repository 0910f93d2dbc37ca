"""Applications of FastAPI. Their annotations are no strings: what is pickled by value does not bring what strings name."""

from typing import Any

from fastapi import Depends, FastAPI, Header, HTTPException, Response, WebSocket
from pydantic import BaseModel
from ray import serve

app = FastAPI()


class Item(BaseModel):
    name: str
    price: float


@serve.deployment
@serve.ingress(app)
class Shop:
    @app.get("/items/{number}")
    def item(self, number: int, big: bool = False) -> dict[str, Any]:
        return {"number": number, "big": big}

    @app.post("/items")
    async def add(self, item: Item) -> dict[str, Any]:
        return {"added": item.name, "twice": 2 * item.price}

    @app.websocket("/echo")
    async def echo(self, socket: WebSocket) -> None:
        await socket.accept()
        for _ in range(3):
            await socket.send_text((await socket.receive_text()).upper())
        await socket.close()


guarded = FastAPI()


@guarded.middleware("http")
async def mark(request: Any, call_next: Any) -> Response:
    answer: Response = await call_next(request)
    answer.headers["x-guard"] = "seen"
    return answer


def key_of(x_key: str = Header(default="")) -> str:
    if x_key != "right":
        raise HTTPException(status_code=403)
    return x_key


@serve.deployment
@serve.ingress(guarded)
class Guarded:
    @guarded.get("/secret")
    def secret(self, key: str = Depends(key_of)) -> dict[str, str]:
        return {"key": key}
