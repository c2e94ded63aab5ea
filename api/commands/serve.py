"""``tilewright serve``: lets other computers run programs on this one's device."""

import argparse
import os
import signal
import threading
from pathlib import Path

from tilewright.commands.command import Command, Outcome
from tilewright.isa.errors import InputError
from tilewright.options import check_outputs
from tilewright.runtime.board_devices import make_machine
from tilewright.runtime.devices import Device, PoolDevice, parse_device
from tilewright.runtime.files import read_file
from tilewright.runtime.remote_client import DEFAULT_PORT, TOKEN_VARIABLE, RemoteAddress
from tilewright.runtime.server import Server, ServerLimits
from tilewright.terminal import Terminal

_LIMITS = ServerLimits()
#: Characters of a token at the least: 128 bits, where they are hexadecimal digits.
_TOKEN_CHARACTERS = 32


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--device",
        metavar="DEV",
        default=Device.SIM.value,
        help="sim, pynq on a board, ulx3s:PORT, tcp://HOST:PORT, or several servers with commas"
        " (default: %(default)s)",
    )
    parser.add_argument(
        "--host",
        default="127.0.0.1",
        help="address to listen on; others than loopback need a token (default: %(default)s)",
    )
    parser.add_argument(
        "--port", type=int, default=DEFAULT_PORT, help="0 takes a free one (default: %(default)s)"
    )
    parser.add_argument(
        "--token-file",
        metavar="FILE",
        type=Path,
        help=f"file of the token that clients must know (default: ${TOKEN_VARIABLE}, or none)",
    )
    parser.add_argument(
        "--job-seconds",
        metavar="N",
        type=float,
        default=_LIMITS.job_seconds,
        help="time that a job may take (default: %(default)g)",
    )


def _execute(arguments: argparse.Namespace, terminal: Terminal) -> Outcome:
    check_outputs(arguments.json)
    if not 0 <= arguments.port < 1 << 16:
        raise InputError(f"--port must be from 0 to 65535, not {arguments.port}")
    if arguments.job_seconds <= 0:
        raise InputError(f"--job-seconds must be above 0, not {arguments.job_seconds:g}")
    token = _token(arguments.token_file)
    with terminal.stage(f"opening {arguments.device}"):
        device = parse_device(arguments.device)
        machine = make_machine(device)
    try:
        stop = threading.Event()
        signal.signal(signal.SIGTERM, lambda *_: stop.set())
        limits = ServerLimits(job_seconds=arguments.job_seconds)
        with Server(
            machine,
            host=arguments.host,
            port=arguments.port,
            token=token,
            limits=limits,
            parallel=device.jobs if isinstance(device, PoolDevice) else 1,
        ) as server:
            host, port = server.address
            address = RemoteAddress(host=host, port=port)
            terminal.message(f"{machine.description} at {address}; interrupt to end")
            try:
                stop.wait()
            except KeyboardInterrupt:
                terminal.message("ending")
    finally:
        machine.close()
    return Outcome(record={"device": arguments.device, "address": str(address)})


def _token(file: Path | None) -> str | None:
    if file is None:
        token = os.environ.get(TOKEN_VARIABLE)
    else:
        token = read_file(file, "token").decode(errors="replace").strip()
    if token is not None and len(token) < _TOKEN_CHARACTERS:
        raise InputError(
            f"a token must have {_TOKEN_CHARACTERS} characters at least, not {len(token)}",
            hint="make one with: python3 -c 'import secrets; print(secrets.token_hex(32))'",
        )
    return token


COMMAND = Command(
    name="serve",
    summary="let other computers run programs here",
    add_arguments=_add_arguments,
    execute=_execute,
)
