"""Processes that begin with torch loaded: forks of one that has imported torch, and nothing of stepvan.

To import torch takes a second of processor time, which is more than most programs of tests need for all else.
"""

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import IO

MOST = 1 << 17  # bytes of code and environment


class Process:
    """A fork, with what tests use of subprocess.Popen."""

    returncode: int | None = None

    stdin: IO[str]  # only where asked for

    def __init__(self, report: socket.socket, stdout: int, stderr: int) -> None:
        self.report = report
        self.pid = int(report.recv(100))
        self.stdout = open(stdout)
        self.stderr = self.stdout if stderr == stdout else open(stderr)
        self.texts: dict[IO[str], str] = {}
        self.readers: list[threading.Thread] = []

    def poll(self) -> int | None:
        return self.ended(0)

    def ended(self, seconds: float | None) -> int | None:
        if self.returncode is None and select.select([self.report], [], [], seconds)[0]:
            self.returncode = int(self.report.recv(100))
            self.report.close()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.ended(timeout) is None:
            raise subprocess.TimeoutExpired(str(self.pid), timeout or 0)
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def communicate(self, timeout: float = 3600) -> tuple[str, str]:
        limit = time.monotonic() + timeout
        if not self.readers:
            for pipe in self.stdout, self.stderr:
                self.readers.append(threading.Thread(target=self.read, args=(pipe,), daemon=True))
                self.readers[-1].start()
        for reader in self.readers:
            reader.join(max(0, limit - time.monotonic()))
            if reader.is_alive():
                raise subprocess.TimeoutExpired(str(self.pid), timeout)
        self.wait(max(0, limit - time.monotonic()))
        return self.texts[self.stdout], self.texts[self.stderr]

    def read(self, pipe: IO[str]) -> None:
        self.texts[pipe] = pipe.read()
        pipe.close()


class Parent:
    """The process with torch, which forks for each program. It ends with this one.

    What torch reads from the environment while it is imported comes from here, not from the environment of a program.
    """

    def __init__(self, **environ: str) -> None:
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for end in self.control, theirs:
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * MOST)
        code = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        code += f"exec(__import__('preloaded').serve({theirs.fileno()}))"
        self.process = subprocess.Popen(
            [sys.executable, "-c", code],
            env={**os.environ, **environ},
            pass_fds=[theirs.fileno()],
            stdout=subprocess.DEVNULL,
        )
        theirs.close()

    def close(self) -> None:
        self.control.close()
        self.process.wait(10)

    def start(self, code: str, environ: dict[str, str], arguments: list[str], merged: bool = False) -> Process:
        """merged: standard error goes where standard output goes."""
        out = os.pipe()
        err = out if merged else os.pipe()
        with open(os.devnull) as nothing:
            report = self.ask([code, environ, arguments], nothing.fileno(), out[1], err[1])
        return Process(report, out[0], err[0])

    def converse(self, code: str, environ: dict[str, str], arguments: list[str]) -> Process:
        """Starts a program with a standard input, which is written line by line. Errors go where those of tests go."""
        given, out = os.pipe(), os.pipe()
        process = Process(self.ask([code, environ, arguments], given[0], out[1], os.dup(2)), out[0], out[0])
        os.close(given[0])
        process.stdin = open(given[1], "w", buffering=1)
        return process

    def ask(self, program: list[object], stdin: int, stdout: int, stderr: int) -> socket.socket:
        """Has a program forked, and closes what it writes to. Gives the socket that tells of it."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        wanted = json.dumps(program).encode()
        assert len(wanted) <= MOST, f"a program and its environment have {len(wanted)} bytes (want at most {MOST})"
        try:
            socket.send_fds(self.control, [wanted], [stdin, stdout, stderr, theirs.fileno()])
        finally:
            theirs.close()
            for fd in {stdout, stderr}:
                os.close(fd)
        return ours


def running(script: str) -> str:
    """The code that runs a script as an interpreter of its own would."""
    folder, name = os.path.split(os.path.abspath(script))
    return f"import sys; sys.path[0] = {folder!r}; __file__ = sys.argv[0] = {os.path.join(folder, name)!r}\n" + (
        "exec(compile(open(__file__).read(), __file__, 'exec'))"
    )


def serve(control: int) -> str:
    """Forks until the other end closes. Returns in each fork: the code that it runs as its main module."""
    import torch  # noqa: F401

    sys.path.pop(0)
    commands = socket.socket(fileno=control)
    running: dict[int, tuple[int, socket.socket]] = {}  # by descriptor of the process
    events = select.poll()
    events.register(commands, select.POLLIN)
    while True:
        for fd, _ in events.poll():
            if fd in running:
                pid, report = running.pop(fd)
                status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                with contextlib.suppress(OSError):  # perhaps nobody asks
                    report.send(str(status).encode())
                report.close()
                events.unregister(fd)
                os.close(fd)
                continue
            wanted, fds, _, _ = socket.recv_fds(commands, MOST, 4)
            if not wanted:
                os._exit(0)
            pid = os.fork()
            if pid == 0:
                commands.close()
                for other, (_, report) in running.items():
                    os.close(other)
                    report.close()
                return begin(wanted, fds)
            report = socket.socket(fileno=fds.pop())
            report.send(str(pid).encode())
            running[os.pidfd_open(pid)] = pid, report
            events.register(list(running)[-1], select.POLLIN)
            for fd in fds:
                os.close(fd)


def begin(wanted: bytes, fds: list[int]) -> str:
    """Makes a fork what a fresh interpreter would be."""
    for i in range(3):
        os.dup2(fds[i], i)
    for fd in fds:
        os.close(fd)
    code, environ, arguments = json.loads(wanted)
    os.environ.clear()
    os.environ.update(environ)
    sys.argv = ["-c", *arguments]
    del sys.modules["preloaded"]
    return code
