"""An application of FastAPI. Its annotations are no strings: what is pickled by value does not bring what strings name."""

from typing import Any

from fastapi import FastAPI, WebSocket
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
