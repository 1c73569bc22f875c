"""An MCP server for one agent, or for all that bring their token."""

import click


@click.command("mcp")
@click.option("--http", is_flag=True, help="Serve HTTP at /mcp, instead of standard input.")
@click.option("--host", default="127.0.0.1", show_default=True, help="With --http.")
@click.option("--port", default=8001, show_default=True, help="With --http.")
@click.option(
    "--url",
    envvar="REFINE_URL",
    default="http://localhost:8000",
    show_default=True,
    help="Refine's address; also as REFINE_URL.",
)
@click.option("--token", envvar="REFINE_TOKEN", help="The agent's; better in REFINE_TOKEN.")
def mcp(*, http: bool, host: str, port: int, url: str, token: str | None) -> None:
    """Serve an agent's memory to a client that speaks the Model Context Protocol.

    It calls Refine's HTTP API at REFINE_URL with the agent's token, and needs nothing else: it may
    run on another machine. Over HTTP each request brings a token of its own, as its bearer.
    """
    try:
        from refine_client.mcp_server import server  # noqa: PLC0415 - an extra
    except ModuleNotFoundError:
        raise click.ClickException(
            "the package mcp is missing: pip install 'refine[mcp]'"
        ) from None
    if http:
        made = server(url)
        made.run("streamable-http", host=host, port=port, stateless_http=True, json_response=True)
    elif token is None:
        raise click.UsageError("set REFINE_TOKEN to the token of the agent")
    else:
        server(url, token).run("stdio")
