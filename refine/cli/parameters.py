"""Arguments and options that several commands share."""

import click

agent_argument = click.argument("reference", metavar="AGENT")
account_option = click.option("--account", "slug", help="Only this account (slug).")
limit_option = click.option(
    "--limit",
    type=click.IntRange(1, 10_000),
    default=50,
    show_default=True,
    help="Maximum number to list.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
