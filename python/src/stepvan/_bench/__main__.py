"""The process: what its arguments say, and the commands that come by its line."""

import argparse
import importlib
import json
import os
import socket
import sys
from collections import Counter
from typing import Any

import stepvan
from stepvan._bench.server import Server
from stepvan._bench.spec import Spec
from stepvan._bench.worker import Worker


class Line:
    """The connection with the measuring process: one command in, one reply out."""

    def __init__(self, path: str) -> None:
        with socket.socket(socket.AF_UNIX) as s:
            s.connect(path)
            self._file = s.makefile("rwb")

    def receive(self) -> Any:
        """The next command. The end of the other side ends this process."""
        line = self._file.readline()
        if not line:
            raise SystemExit("the process that measures is gone")
        return json.loads(line)

    def send(self, message: dict[str, Any]) -> None:
        self._file.write(json.dumps(message).encode() + b"\n")
        self._file.flush()


class Member:
    """A node and its program. One thread."""

    def __init__(self, node: stepvan.Node, tensors: str, line: Line) -> None:
        self._node = node
        self._dtype = importlib.import_module(tensors).uint8
        self._line = line
        self._program: Worker | Server | None = None

    def run(self) -> None:
        """Says hello and obeys until it is told to finish."""
        rank = max(self._node.worker_rank, self._node.server_rank)
        self._line.send({"role": self._node.role, "rank": rank})
        while True:
            command = self._line.receive()
            if command["verb"] == "finish":
                self._node.stop()
                return self._line.send({})
            try:
                reply = self._obey(command["verb"], command)
            except Exception as error:
                self._line.send({"error": f"{type(error).__name__}: {error}"})
                raise
            self._line.send(reply)

    def _obey(self, verb: str, command: dict[str, Any]) -> dict[str, Any]:
        if verb == "prepare":
            self._prepare(Spec.read(command["spec"]))
            return {}
        if self._program is None:
            raise ValueError(f"{verb} before prepare")
        if verb == "check":
            self._program.check(command["count"])
            return {}
        if verb == "measure":
            return self._program.measure(command["count"])
        if verb == "report":
            return {"counts": Counter(self._program.times)}
        raise ValueError(f"{verb!r} is no command for a {self._node.role} in Python")

    def _prepare(self, spec: Spec) -> None:
        if self._node.role == "server":
            self._program = Server(self._node, spec, self._dtype)
            return
        for peer in self._node.peers:
            if peer.van != spec.van:
                raise ValueError(
                    f"{peer.role} {peer.rank} is reached by {peer.van} and not by {spec.van} ({peer.reason}): "
                    "unset the STEPVAN_ and DMLC_ variables that choose"
                )
        self._program = Worker(self._node, spec, self._dtype)


def pin(core: int) -> None:
    """Binds this process to a core, counted from 1. Threads that run keep theirs, so the program is executed again."""
    if os.sched_getaffinity(0) != {core - 1}:
        os.sched_setaffinity(0, {core - 1})
        os.execv(sys.executable, sys.orig_argv)


def main() -> None:
    """Is a node until the measurement ends."""
    parser = argparse.ArgumentParser(prog="python -m stepvan._bench", description=__doc__)
    parser.add_argument("--tensors", choices=["numpy", "torch"], required=True, help="whose tensors it exchanges")
    parser.add_argument("--control", required=True, help="path of the socket that commands come by")
    parser.add_argument("--pin", type=int, default=0, help="core, from 1")
    args = parser.parse_args()
    if args.pin > 0:
        pin(args.pin)
    try:
        importlib.import_module(args.tensors)
    except ImportError as error:
        raise SystemExit(f"{sys.executable}: --nodes {args.tensors} needs {args.tensors}: {error}") from None
    with stepvan.Node() as node:
        Member(node, args.tensors, Line(args.control)).run()


if __name__ == "__main__":
    try:
        main()
    except stepvan.Error as error:
        raise SystemExit(str(error)) from None
    except KeyboardInterrupt:
        raise SystemExit(130) from None
