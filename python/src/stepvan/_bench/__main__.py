"""The process: its arguments, and the commands on its connection."""

import argparse
import importlib
import json
import os
import socket
import sys
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import stepvan
from stepvan._bench import gloo_peer, nixl_peer, nixl_refit
from stepvan._bench.refit import Refit, Share
from stepvan._bench.server import Server
from stepvan._bench.spec import Spec
from stepvan._bench.worker import Worker


class ControlConn:
    """The connection with the measuring process: one command in, one reply out."""

    def __init__(self, path: str) -> None:
        with socket.socket(socket.AF_UNIX) as s:
            s.connect(path)
            self._file = s.makefile("rwb")

    def receive(self) -> Any:
        """The next command. The end of the other side ends this process."""
        line = self._file.readline()
        if not line:
            raise SystemExit("the measuring process is gone")
        return json.loads(line)

    def send(self, message: dict[str, Any]) -> None:
        self._file.write(json.dumps(message).encode() + b"\n")
        self._file.flush()


Program = Worker | Server | nixl_peer.NixlPeer | Refit


class NodeRunner:
    """A program and the connection that brings its commands. One thread."""

    def __init__(self, role: str, rank: int, conn: ControlConn, prepare: Callable[[dict[str, Any]], Program]) -> None:
        """``prepare`` makes the program from the command to prepare."""
        self._role, self._rank, self._conn, self._prepare = role, rank, conn, prepare
        self._program: Program | None = None

    def run(self) -> None:
        """Says hello and runs commands until the command to finish."""
        self._conn.send({"role": self._role, "rank": self._rank})
        while True:
            command = self._conn.receive()
            if command["verb"] == "finish":
                if self._program is not None:
                    self._program.stop()
                return self._conn.send({})
            try:
                reply = self._handle(command["verb"], command)
            except Exception as error:
                self._conn.send({"error": f"{type(error).__name__}: {error}"})
                raise
            self._conn.send(reply)

    def _handle(self, verb: str, command: dict[str, Any]) -> dict[str, Any]:
        if verb == "prepare":
            self._program = self._prepare(command)
            return self._program.prepared() if isinstance(self._program, Refit) else {}
        if self._program is None:
            raise ValueError(f"{verb} before prepare")
        if verb == "check":
            return self._program.check(command["count"]) or {}
        if verb == "measure":
            return self._program.measure(command["count"])
        if verb == "report":
            if isinstance(self._program, Refit):
                return self._program.report()
            return {"counts": Counter(self._program.times)}
        raise ValueError(f"a {self._role} in Python has no command {verb!r}: use the same version of stepvan and of its Python package")


def program_of(node: stepvan.Node, tensors: str, spec: Spec) -> Program:
    """The program of a node of stepvan."""
    dtype = importlib.import_module(tensors).uint8
    if node.role == "server":
        return Server(node, spec, dtype)
    for peer in node.peers:
        if peer.van != spec.van:
            raise ValueError(
                f"{peer.role} {peer.rank} is reached by {peer.van} and not by {spec.van} ({peer.reason}): "
                "unset the STEPVAN_ and DMLC_ variables that choose"
            )
    return Worker(node, spec, dtype)


def prepare_nixl(role: str, rank: int, folder: Path) -> Callable[[dict[str, Any]], Program]:
    """What makes the program of a process of NIXL."""

    def prepare(command: dict[str, Any]) -> Program:
        spec = Spec.read(command["spec"])
        if spec.workload == "refit":
            return nixl_refit.NixlRefit(rank, folder, spec.van, Share(command["share"]))
        return nixl_peer.NixlPeer(role, folder, spec)

    return prepare


def prepare_gloo(rank: int, folder: Path) -> Callable[[dict[str, Any]], Program]:
    """What makes the program of a process of gloo."""

    def prepare(command: dict[str, Any]) -> Program:
        world = command["spec"]["workers"] + command["spec"]["servers"]
        return gloo_peer.GlooPeer(rank, world, folder, Share(command["share"]))

    return prepare


def pin(core: int) -> None:
    """Binds this process to a core, counted from 1. Running threads keep theirs, so it executes the program again."""
    if os.sched_getaffinity(0) != {core - 1}:
        os.sched_setaffinity(0, {core - 1})
        os.execv(sys.executable, sys.orig_argv)


def main() -> None:
    """Is a node, or a process of a peer, until the measurement ends."""
    parser = argparse.ArgumentParser(prog="python -m stepvan._bench", description=__doc__)
    parser.add_argument("--tensors", choices=["numpy", "torch", "nixl", "gloo"], required=True, help="whose tensors it exchanges; nixl, gloo: by what")
    parser.add_argument("--control", required=True, help="path of the socket that commands come by")
    parser.add_argument("--pin", type=int, default=0, help="core, from 1")
    args = parser.parse_args()
    if args.pin > 0:
        pin(args.pin)
    if args.tensors == "nixl":
        nixl_peer.load()
        role = os.environ["DMLC_ROLE"]
        rank = int(os.environ["DMLC_NODE_RANK"]) if role == "peer" else 0
        return NodeRunner(role, rank, ControlConn(args.control), prepare_nixl(role, rank, Path(args.control).parent)).run()
    if args.tensors == "gloo":
        gloo_peer.load()
        rank = int(os.environ["DMLC_NODE_RANK"])
        return NodeRunner("peer", rank, ControlConn(args.control), prepare_gloo(rank, Path(args.control).parent)).run()
    try:
        importlib.import_module(args.tensors)
    except ImportError as error:
        raise SystemExit(f"{sys.executable}: --nodes {args.tensors} needs {args.tensors}: {error}") from None
    with stepvan.Node() as node:
        rank = max(node.worker_rank, node.server_rank)
        prepare = partial(program_of, node, args.tensors)
        NodeRunner(node.role, rank, ControlConn(args.control), lambda command: prepare(Spec.read(command["spec"]))).run()


if __name__ == "__main__":
    try:
        main()
    except stepvan.Error as error:
        raise SystemExit(str(error)) from None
    except KeyboardInterrupt:
        raise SystemExit(130) from None
