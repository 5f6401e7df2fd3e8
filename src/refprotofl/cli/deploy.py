"""The commands `deploy …` for the operator of a site. Those for the owner of a device are in node.py."""

import os
import shlex
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from refprotofl.cli.app import INTERRUPTED, DataDir, File, Group, Preset, Seed, Settings, app, read_path, with_seed
from refprotofl.cli.output import say, warn
from refprotofl.core import DataError, InputError, RunError, counted, with_port
from refprotofl.deploy.log import LogFormat
from refprotofl.deploy.transports import TRANSPORTS, TransportName

if TYPE_CHECKING:
    from refprotofl.deploy.operator import Operator, RunStatus
    from refprotofl.deploy.site import Site
    from refprotofl.experiment import Experiment

deploy_app = typer.Typer(
    cls=Group,
    no_args_is_help=True,
    help="Run on real devices: create a site, start its server, admit nodes, submit runs.",
    epilog="Example: refprotofl deploy demo",
)
app.add_typer(deploy_app, name="deploy")

SiteFolder = Annotated[Path, typer.Argument(help="The folder of a site.", parser=read_path, metavar="SITE")]

LogFormatOption = Annotated[
    LogFormat, typer.Option("--log-format", help="Lines of its log: text, or JSON objects for collectors of logs.")
]


def open_site(folder: Path) -> "tuple[Site, Operator]":
    """Return a site and its operator's connection."""
    from refprotofl.deploy.site import read_site

    site = read_site(folder)
    _go_quiet(site)
    return site, site.transport.connect(site)


def _go_quiet(site: "Site") -> None:
    """Turn off Flower's telemetry and update checks in this process, and give it its own folder."""
    from refprotofl.deploy.server_process import environment

    os.environ.update(environment(site))


@deploy_app.command("init", epilog="Example: refprotofl deploy init site --nodes 3 --host server.example")
def init(
    folder: SiteFolder,
    nodes: Annotated[int, typer.Option(help="Number of nodes; each gets a kit.", min=1, max=10_000)],
    host: Annotated[str, typer.Option(help="The name or address under which nodes reach the server.")],
    port: Annotated[int, typer.Option(help="The port for nodes.", min=1, max=65_535)] = 8443,
    operator_port: Annotated[
        int | None,
        typer.Option(help="The port on 127.0.0.1 for the operator (default: port + 1).", min=1, max=65_535),
    ] = None,
    transport: Annotated[TransportName, typer.Option(help="What carries the messages.")] = "flower",
    broker: Annotated[
        str, typer.Option(help="The host:port of a broker that you run (MQTT; default: mosquitto, started here).")
    ] = "",
    names: Annotated[
        str, typer.Option(help="Names of the nodes, with commas: basel,bern,chur (default: node-0, node-1, …).")
    ] = "",
    insecure: Annotated[
        bool, typer.Option("--insecure", help="No TLS and no keys; for trials on this machine only.")
    ] = False,
) -> None:
    """Create a site: a certificate authority, the server's certificate, the operator's secret and a kit for each node.

    A node's private key is made on the node and never leaves it.
    """
    from refprotofl.deploy.kits import read_names, write_kits
    from refprotofl.deploy.site import INSECURE, SiteKeys, create_site

    TRANSPORTS[transport].require_extra()
    called = read_names(names, nodes)
    first = called[0] if called else "node-0"
    keys = SiteKeys(
        host=host,
        port=port,
        operator_port=operator_port or (port + 1 if port < 65_535 else port - 1),
        nodes=nodes,
        transport=transport,
        broker=broker,
        insecure=insecure,
    )
    site = create_site(folder, keys)
    write_kits(site, called)
    if insecure:
        warn(INSECURE)
    named = shlex.quote(str(folder))
    say(f"Wrote {site.server} and {counted(nodes, 'kit')} to {folder / 'kits'}.")
    say("On the server:")
    say(f"  refprotofl deploy start {named}")
    say(f"On each node, with its kit and refprotofl[{transport}] there:")
    say("  edit node.toml (data-path); refprotofl deploy doctor .; ./start.sh")
    if not insecure:
        key, certificate = site.transport.key_file, site.transport.certificate
        back = f"; its certificate goes back to it as {certificate}" if certificate else ""
        say(f"On the server, for each {key} that a node sends{back}:")
        say(f"  refprotofl deploy admit {named} {shlex.quote(first)} {key}")
    say("On the server:")
    say(f"  refprotofl deploy run {named} experiment.toml --out run")


@deploy_app.command("start", epilog="Example: refprotofl deploy start site")
def start(
    folder: SiteFolder,
    bind: Annotated[
        str | None,
        typer.Option(help="The address to listen on for nodes (default: --host of init)."),
    ] = None,
    log_format: LogFormatOption = "text",
) -> None:
    """Start the server of a site in the background."""
    from refprotofl.deploy.log import set_format
    from refprotofl.deploy.renewal import expiring, warning
    from refprotofl.deploy.server_process import start
    from refprotofl.deploy.site import INSECURE, read_site

    site = read_site(folder)
    site.transport.require_extra()
    set_format(log_format)
    if site.keys.insecure:
        warn(INSECURE)
    process, address = start(site, bind)
    say(f"The server runs as process {process}; its log is {site.log}.")
    if sentence := warning(site, expiring(site, site.transport.connect(site))):
        warn(sentence)
    say(f"Devices reach it on {with_port(address, site.keys.port)}, the operator on {site.operator_address}.")


@deploy_app.command("run", epilog="Example: refprotofl deploy run site experiment.toml --set rounds=20 --out run")
def run(
    folder: SiteFolder,
    file: File = None,
    preset: Preset = None,
    settings: Settings = None,
    seed: Seed = None,
    out_dir: Annotated[
        Path | None,
        typer.Option(
            "--out", parser=read_path, metavar="DIR", help="The run folder on the server (default: a new one)."
        ),
    ] = None,
    data: DataDir = None,
    detach: Annotated[bool, typer.Option("--detach", help="Submit the run and return at once.")] = False,
) -> None:
    """Run an experiment on the site's nodes and show its progress; the exit code is that of the run.

    An existing run in --out is resumed. Ctrl-C ends the display, not the run.
    """
    from refprotofl.deploy.operator import follow

    site, operator = open_site(folder)
    config = _run_config(site, file, preset, with_seed(settings, seed), out_dir, data)
    number = operator.start(config)
    named = shlex.quote(str(folder))
    say(f"Submitted run {number}. Its log is {site.runs / f'{number}.log'}.")
    if detach:
        say(f"Show its progress with: refprotofl deploy status {named}")
        return
    try:
        ended = follow(site, operator, number, lambda line: None if line.startswith("Error: ") else say(line))
    except KeyboardInterrupt:
        say(f"The run continues. Stop it with: refprotofl deploy stop {named} --run {number}")
        raise typer.Exit(INTERRUPTED) from None
    _raise_for(ended)


def _run_config(
    site: "Site", file: Path | None, preset: str | None, settings: list[str], out: Path | None, data: Path | None
) -> dict[str, str]:
    """Return Flower's run config for an experiment that was checked here; paths are made absolute."""
    from refprotofl.experiment import load_experiment

    if not _sets_clients(file, settings):
        settings = [*settings, f"clients={site.keys.nodes}"]
    experiment = load_experiment(file, preset, settings)
    settings = [*settings, *_absolute_sets(experiment)]
    paths = {"file": file, "out": out, "data": data}
    config = {name: str(path.absolute()) for name, path in paths.items() if path is not None}
    return config | ({"preset": preset} if preset else {}) | ({"set": shlex.join(settings)} if settings else {})


def _sets_clients(file: Path | None, settings: list[str]) -> bool:
    if any(one.partition("=")[0].strip() == "clients" for one in settings):
        return True
    try:
        found: dict[str, Any] = {} if file is None else tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return True  # the error is reported where the file is loaded
    return "clients" in found


def _absolute_sets(experiment: "Experiment") -> list[str]:
    """Return settings that make the paths of data sets absolute: the run's process does not start in this folder."""
    from refprotofl.data.loading import is_relative

    sets = {"public.dataset": experiment.public.dataset, "test.dataset": experiment.test.dataset}
    return [f"{key}={Path(name).absolute()}" for key, name in sets.items() if name and is_relative(name)]


def _raise_for(ended: "RunStatus") -> None:
    if ended.status == "finished:completed":
        return
    if ended.status == "finished:stopped":
        raise RunError("The run was stopped. Committed rounds are kept: continue with the same --out.")
    kind = {InputError.exit_code: InputError, DataError.exit_code: DataError}.get(ended.exit_code, RunError)
    raise kind(ended.reason or "The run failed; its log says why.")


@deploy_app.command("admit", epilog="Example: refprotofl deploy admit site node-0 node.key.pub")
def admit(
    folder: SiteFolder,
    name: Annotated[str, typer.Argument(help="The node's name, such as node-0.", show_default=False)],
    key: Annotated[
        Path,
        typer.Argument(
            help="The node's node.key.pub; over MQTT node.csr.",
            parser=read_path,
            metavar="KEY",
            show_default=False,
        ),
    ],
    client: Annotated[
        int | None, typer.Option(help="The client number (default: the number at the end of its name).", min=0)
    ] = None,
) -> None:
    """Admit a node: from now on its key, and no other, may act as this client."""
    from refprotofl.deploy.operator import admit

    site, operator = open_site(folder)
    number, mark = admit(site, operator, name, key, client)
    say(f"Admitted {name} as client {number}; the SHA-256 of its key is {mark}.")
    if needed := site.transport.certificate:
        say(f"Its certificate, which the node needs as {needed} in its kit: {site.certificate(mark)}")


@deploy_app.command("revoke", epilog="Example: refprotofl deploy revoke site node-0")
def revoke(
    folder: SiteFolder,
    name: Annotated[str, typer.Argument(help="The node's name.", metavar="NODE", show_default=False)],
) -> None:
    """Revoke a node's key permanently. It takes effect at once, also during a run."""
    from refprotofl.deploy.operator import revoke

    site, operator = open_site(folder)
    revoke(site, operator, name)
    say(f"Revoked the key of {name}. A run under way continues without it.")


@deploy_app.command("stop", epilog="Example: refprotofl deploy stop site")
def stop(
    folder: SiteFolder,
    run: Annotated[int | None, typer.Option(help="Stop this run only.", metavar="RUN")] = None,
) -> None:
    """Stop the server and its runs, or one run. A run is resumed by deploy run with the same --out."""
    from refprotofl.deploy.server_process import stop
    from refprotofl.deploy.site import read_site

    if run is not None:
        _, operator = open_site(folder)
        if operator.run(run).finished:
            raise InputError(f"Run {run} has ended already.")
        operator.stop(run)
        say(f"Run {run} is stopped.")
        return
    say("The server is stopped." if stop(read_site(folder)) else f"No server of {folder} is running.")


@deploy_app.command("demo", epilog="Example: refprotofl deploy demo --nodes 3")
def demo(
    nodes: Annotated[int, typer.Option(help="Number of nodes.", min=2, max=20)] = 3,
    transport: Annotated[TransportName, typer.Option(help="What carries the messages.")] = "flower",
) -> None:
    """Try a whole deployment on this machine: site, server, nodes over TLS, three rounds, clean-up.

    It succeeds if the run has the state digest of the same run in one process.
    """
    from refprotofl.deploy.demo import demonstrate

    TRANSPORTS[transport].require_extra()
    digest = demonstrate(nodes, transport, say)
    say(f"The digests agree: {digest[:12]}. Server and nodes are stopped, and their files removed.")
