"""Hosts to test on: network namespaces of this machine, joined by a bridge in another one. Needs root and `ip`."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from runs import environment

PORT = 29400  # of the rendezvous: a host's ports are its own


class Hosts:
    """Namespaces with one network device each, `eth`, whose addresses are 10.78.0.1, 10.78.0.2 and so on."""

    def __init__(self, count: int) -> None:
        self.tag = f"lm{os.getpid()}"
        self.names = [f"{self.tag}-{number}" for number in range(1, count + 1)]
        self.switch = f"{self.tag}-switch"
        self.started: list[subprocess.Popen[bytes]] = []

    def set_up(self) -> None:
        """Makes the namespaces. subprocess.CalledProcessError: they cannot be made here."""
        for name in (self.switch, *self.names):
            ip("netns", "add", name)
        ip("-n", self.switch, "link", "add", "bridge", "type", "bridge")
        ip("-n", self.switch, "link", "set", "bridge", "up")
        for number, name in enumerate(self.names, 1):
            peer = ("type", "veth", "peer", "name", f"port{number}", "netns", self.switch)
            ip("-n", name, "link", "add", "eth", *peer)
            ip("-n", self.switch, "link", "set", f"port{number}", "master", "bridge", "up")
            ip("-n", name, "addr", "add", f"{address(number)}/24", "dev", "eth")
            for device in ("lo", "eth"):
                ip("-n", name, "link", "set", device, "up")

    def start(self, number: int, output: Path, *command: str, **more: str) -> subprocess.Popen[bytes]:
        """Start a command on a host, 1, 2 or so on, with more in its environment; its output is added to a file."""
        more |= {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "eth"}
        # or torch 2.13 does not tell a host that joins later where process 0 is
        more |= {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
        with open(output, "a") as file:
            process = subprocess.Popen(
                ["ip", "netns", "exec", self.names[number - 1], *command],
                stdout=file,
                stderr=file,
                env=environment(**more),
                start_new_session=True,
            )
        self.started.append(process)
        return process

    def wait(self) -> list[int]:
        """Waits for all that was started and was not killed; their exit statuses."""
        return [status for process in self.started if (status := process.wait(timeout=240)) != -9]

    def cut(self, number: int) -> None:
        """Takes a host's network away: what is sent to it is lost, and nobody is told."""
        ip("-n", self.switch, "link", "set", f"port{number}", "nomaster")

    def kill(self, number: int) -> None:
        """Kills all that runs on a host, as a loss of power does."""
        name = self.names[number - 1]
        inside = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True).stdout.split()
        subprocess.run(["kill", "-9", *inside], capture_output=True)

    def take_down(self) -> None:
        """Ends all that was started, and removes the namespaces."""
        for number in range(1, len(self.names) + 1):
            self.kill(number)
        for process in self.started:
            process.wait()
        for name in (*self.names, self.switch):
            subprocess.run(["ip", "netns", "del", name], capture_output=True)


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


def address(number: int) -> str:
    """The address of a host."""
    return f"10.78.0.{number}"


@contextlib.contextmanager
def network(count: int = 2) -> Iterator[Hosts]:
    """So many hosts; the test is skipped where there can be none."""
    if os.name == "nt" or os.geteuid() != 0 or not shutil.which("ip"):
        pytest.skip("network namespaces need root and the command ip")
    hosts = Hosts(count)
    try:
        try:
            hosts.set_up()
        except subprocess.CalledProcessError as error:
            pytest.skip(f"no network namespaces here: {error.stderr.decode().strip()}")
        yield hosts
    finally:
        hosts.take_down()


def torchrun(number: int, hosts: int, *options: str) -> list[str]:
    """The command torchrun of one of several hosts that meet at the first one's address."""
    command = [sys.executable, "-m", "torch.distributed.run", "--nnodes", str(hosts), "--nproc-per-node", "1"]
    meeting = ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"{address(1)}:{PORT}", "--rdzv-id", "run"]
    leads = f"is_host={number == 1}".lower()  # or it asks for its name, which is the same in all namespaces
    return [*command, *meeting, "--rdzv-conf", leads, "--local-addr", address(number), *options]
