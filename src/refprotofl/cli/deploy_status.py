"""The commands of an operator that show how a site is, and that renew its certificates."""

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any

import typer

from refprotofl.cli.deploy import SiteFolder, deploy_app, open_site
from refprotofl.cli.output import Column, out, say, show, warn
from refprotofl.core import InputError, RunError, counted

if TYPE_CHECKING:
    from refprotofl.deploy.operator import NodeStatus, Operator, RunStatus
    from refprotofl.deploy.site import Site

WATCHED = 1.0  # seconds between two looks


@deploy_app.command("nodes", epilog="Example: refprotofl deploy nodes site")
def nodes(folder: SiteFolder) -> None:
    """List the admitted nodes and their status."""
    site, operator = open_site(folder)
    _show_nodes(site, operator)


def _show_nodes(site: "Site", operator: "Operator") -> None:
    from refprotofl.deploy.admission import read_admissions

    found = operator.nodes()
    if site.keys.insecure:
        rows = [(str(node.number), "-", _status_of(node), "-") for node in found]
    else:
        by_key = {node.key: node for node in found}
        admitted = sorted(read_admissions(site).nodes.items(), key=lambda item: item[1].client)
        rows = [(name, str(one.client), _status_of(by_key.get(one.key)), one.key[:16]) for name, one in admitted]
    show((Column("node"), Column("client"), Column("status"), Column("key")), rows, counted(len(rows), "node"))


def _status_of(node: "NodeStatus | None") -> str:
    if node is None:
        return "not registered: admit it again"
    if node.status == "registered":
        return "never connected"
    return (
        f"{node.status} since {time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(node.seen))}"
        if node.seen
        else node.status
    )


@deploy_app.command("status", epilog="Example: refprotofl deploy status site")
def status(
    folder: SiteFolder,
    watch: Annotated[bool, typer.Option("--watch", help="Show it again whenever it changes, until Ctrl-C.")] = False,
) -> None:
    """Show the server, its nodes and its runs; the exit code is 4 if the last run failed."""
    site, operator = open_site(folder)
    if not watch:
        last = _show_status(site, operator)
        if last is not None and last.status == "finished:failed":
            raise RunError(f"The last run failed: {last.reason} Run again with the same --out to resume it.")
        return
    with suppress(KeyboardInterrupt):
        _watch(site, operator)


def _watch(site: "Site", operator: "Operator") -> None:
    """Show the status again whenever it changes: in place on a terminal, below one another elsewhere."""
    from refprotofl.deploy.operator import run_state

    shown: object = None
    while True:
        runs = operator.runs()
        now = (operator.nodes(), runs, [run_state(site, one.run) for one in runs[:1]])
        if now != shown:
            if out.is_terminal:
                out.clear()
            say(f"{time.strftime('%Y-%m-%d %H:%M:%S')}, Ctrl-C ends the display.")
            _show_status(site, operator)
            shown = now
        time.sleep(WATCHED)


def _show_status(site: "Site", operator: "Operator") -> "RunStatus | None":
    """Show how the server, its nodes and its runs are; return the last run."""
    from refprotofl.deploy.operator import run_state
    from refprotofl.deploy.renewal import expiring, warning
    from refprotofl.deploy.server_process import check_certificates, process_of

    process = process_of(site)
    if process is None:
        raise InputError(f"The server of {site.folder} is not running: refprotofl deploy start {site.folder}")
    say(f"The server runs as process {process}.")
    try:
        check_certificates(site)
    except InputError as problem:
        warn(str(problem))
    if sentence := warning(site, expiring(site, operator)):
        warn(sentence)
    _show_nodes(site, operator)
    runs = operator.runs()
    rows = [(str(one.run), one.status, _progress(run_state(site, one.run), one)) for one in runs]
    title = f"{counted(len(rows), 'run')}, the newest first"
    show((Column("run"), Column("status"), Column("progress", wraps=50)), rows, title)
    return runs[0] if runs else None


def _progress(state: dict[str, Any], run: "RunStatus") -> str:
    from refprotofl.deploy.status import Wait

    parts = [f"round {state['round']} of {state['rounds']}"] if state.get("rounds") else []
    if run.finished:
        return "; ".join([*parts, run.reason] if run.reason else parts)
    waits = [str(Wait(**one)) for one in state.get("waiting", [])]
    absent = [f"{one['client']}: {one['reason']}" for one in state.get("absent", [])]
    parts += [f"waiting for {', '.join(waits)}"] if waits else []
    return "; ".join(parts + ([f"absent: {', '.join(absent)}"] if absent else []))


@deploy_app.command("renew", epilog="Example: refprotofl deploy renew site")
def renew(
    folder: SiteFolder,
    days: Annotated[
        float, typer.Option(help="Renew what ends within this many days; 4000 renews everything.", min=0)
    ] = 60,
) -> None:
    """Replace certificates that expire soon, those of the server and of nodes. Keys and the CA stay as they are.

    A running server uses the new ones at once. Over MQTT a node gets its certificate when it is online.
    """
    from refprotofl.deploy.renewal import renew
    from refprotofl.deploy.server_process import process_of

    site, operator = open_site(folder)
    if site.keys.insecure:
        raise InputError("An insecure site has no certificates.")
    renewed = renew(site, operator, days)
    say(f"Renewed {', '.join(renewed)}." if renewed else f"No certificate ends within {days:g} days.")
    nodes = [name for name in renewed if not name.endswith(".crt")]
    if nodes and process_of(site) is None:
        say(f"Nodes get theirs once the server runs: refprotofl deploy start {folder}")
    if nodes:
        say(f"A node whose certificate has expired cannot connect: copy its new one from {site.server}/certificates.")
