"""`python -m zoo.serving MODEL`: OpenAI's API for a model, on this machine.

It needs what `pip install "transformer-zoo[serving]"` brings.
"""

import sys
from contextlib import suppress

import click

from zoo.base.errors import ZooError
from zoo.converters.errors import require


@click.command("python -m zoo.serving")
@click.argument("model")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen at.")
@click.option("--port", type=click.IntRange(0, 65535), default=8000, show_default=True, help="The port, 0 for any.")
@click.option("--name", help="Name of the model in requests; by default as MODEL, or the folder's name.")
@click.option("--device", help="Where it runs: cpu, cuda, ...; by default on the GPU if available.")
@click.option("--token", envvar="ZOO_SERVING_TOKEN", help="The token that requests need; by default a random one.")
@click.option("--allow-host", "hosts", multiple=True, metavar="HOST", help="A host name that requests may be sent to.")
def serve(
    model: str, host: str, port: int, name: str | None, device: str | None, token: str | None, hosts: tuple[str, ...]
) -> None:
    """Serve MODEL by OpenAI's API: completions, chats and embeddings.

    MODEL is a checkpoint's folder with its tokenizer, the name of weights, or a repository on the Hub. Requests need
    the token: in the address that is printed, or as OpenAI's API key.
    """
    try:
        require("serving", "starlette", "pydantic", "uvicorn")
        from zoo.serving.app import build_app
        from zoo.serving.local import LocalServer
        from zoo.serving.served import ServedModel

        served = ServedModel(model, name=name, device=device)
        server = LocalServer(build_app(served), host=host, port=port, token=token, hosts=hosts)
    except ZooError as error:
        sys.exit(f"zoo: error: {error}")
    click.echo(f"Serving {served.names[0]} at {server.address}v1 until Ctrl-C")
    with suppress(KeyboardInterrupt):
        server.run()


if __name__ == "__main__":
    serve()
