"""What tests share: clusters in this process, and programs in processes of their own."""

import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import preloaded
import pytest

import stepvan

os.environ["STEPVAN_LOG_LEVEL"] = "error"


def pytest_configure(config: pytest.Config) -> None:
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        # A background job starts so, and the programs of tests of Ctrl-C would inherit it. A handler is not inherited.
        signal.signal(signal.SIGINT, lambda *_: None)
    config.addinivalue_line("markers", "processes: starts processes, which is slow where each loads torch under a sanitizer")
    config.addinivalue_line("markers", "serial: counts memory or objects, or reads the repository, so nothing else runs beside it")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        module = getattr(item, "module", None)
        starts = any(hasattr(module, name) for name in ("subprocess", "multiprocessing"))
        if starts or {"run_alone", "with_torch"} & set(getattr(item, "fixturenames", ())):
            item.add_marker("processes")


_reserved: list[socket.socket] = []


def free_port() -> int:
    """A port that nothing else on this machine gets while the tests run.

    The socket stays bound, and does not listen: a scheduler, which sets SO_REUSEADDR as well, can listen on the port.
    """
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind(("127.0.0.1", 0))
    _reserved.append(s)
    return s.getsockname()[1]


def environment(workers: int = 1, servers: int = 1, peers: int = 0, **settings: str) -> dict[str, str]:
    """The settings of a cluster on this machine."""
    return {
        "DMLC_NUM_WORKER": str(workers),
        "DMLC_NUM_SERVER": str(servers),
        "STEPVAN_NUM_PEER": str(peers),
        "DMLC_PS_ROOT_URI": "127.0.0.1",
        "DMLC_PS_ROOT_PORT": str(free_port()),
        "DMLC_LOCAL": "1",
        "STEPVAN_START_TIMEOUT": "30s",
        "STEPVAN_STOP_TIMEOUT": "30s",
        "STEPVAN_LOG_LEVEL": "error",
        **settings,
    }


class Cluster:
    """A scheduler, workers, servers and peers, all in this process."""

    def __init__(self, workers: int, servers: int, peers: int = 0, **settings: str) -> None:
        self.settings = environment(workers, servers, peers, **settings)
        roles = [("scheduler", 0)]
        roles += [("worker", i) for i in range(workers)] + [("server", i) for i in range(servers)]
        roles += [("peer", i) for i in range(peers)]
        self.pool = ThreadPoolExecutor(len(roles) + 4)
        self.nodes = list(self.pool.map(lambda role: self.node(*role), roles))
        self.workers = self.nodes[1 : 1 + workers]
        self.servers = self.nodes[1 + workers : 1 + workers + servers]
        self.peers = self.nodes[1 + workers + servers :]
        self.serving: list[Any] = []
        self.open = True

    def node(self, role: str, rank: int) -> stepvan.Node:
        own = {"DMLC_ROLE": role} if role == "scheduler" else {"DMLC_ROLE": role, "DMLC_NODE_RANK": str(rank)}
        return stepvan.Node({**self.settings, **own})

    def serve(self, answer: Callable[[stepvan.Request], Any], server: int = 0) -> None:
        """Answers requests with what ``answer`` gives, in the background, until all workers have left."""

        def loop() -> None:
            for batch in self.servers[server].server:
                for request in batch:
                    request.respond(answer(request))

        self.serving.append(self.pool.submit(loop))

    def stop(self) -> None:
        list(self.pool.map(lambda node: node.stop(20), self.nodes))
        for future in self.serving:
            future.result(20)

    def close(self) -> None:
        self.open = False
        for node in self.nodes:
            node.close()
        self.pool.shutdown()


@pytest.fixture
def cluster() -> Iterator[Callable[..., Cluster]]:
    """Makes clusters, which stop when the test has passed."""
    made: list[Cluster] = []

    def make(workers: int = 1, servers: int = 1, peers: int = 0, **settings: str) -> Cluster:
        made.append(Cluster(workers, servers, peers, **settings))
        return made[-1]

    try:
        yield make
        for c in made:
            if c.open:
                c.stop()
    finally:
        for c in made:
            c.close()


class Program:
    """Python code in a process of its own. It is ended when a test has waited for its next line in vain."""

    patience = 120.0  # seconds

    def __init__(self, start: Callable[..., Any], code: str, settings: dict[str, str], *arguments: str) -> None:
        environ = {k: v for k, v in os.environ.items() if not k.startswith(("DMLC_", "STEPVAN_"))}
        self.process = start(textwrap.dedent(code), {**environ, **settings}, list(arguments))

    def line(self) -> str:
        """The next line that it prints."""
        assert self.process.stdout is not None
        timer = threading.Timer(self.patience, self.process.kill)
        timer.start()
        try:
            line = self.process.stdout.readline().strip()
        finally:
            timer.cancel()
        if not line:
            self.result(expect=None)
            raise AssertionError(f"it has ended: {self.error}")
        return line

    def result(self, expect: int | None = 0, timeout: float = 30) -> str:
        """What else it prints, when it has ended as expected."""
        try:
            out, self.error = self.process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            out, self.error = self.process.communicate()
            raise AssertionError(f"it hangs: {out}\n{self.error}") from None
        if expect is not None:
            assert self.process.returncode == expect, f"{out}\n{self.error}"
        return out


def interpreter(code: str, environ: dict[str, str], arguments: list[str]) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def programs(begin: Callable[..., Any]) -> Iterator[Callable[..., Program]]:
    """Starts programs, none of which survives the test."""
    started: list[Program] = []

    def start(code: str, settings: dict[str, str] | None = None, *arguments: str) -> Program:
        started.append(Program(begin, code, settings or {}, *arguments))
        return started[-1]

    yield start
    for program in started:
        if program.process.poll() is None:
            program.process.kill()
            program.process.communicate()


@pytest.fixture
def run_alone() -> Iterator[Callable[..., Program]]:
    """Starts programs, each in an interpreter of its own."""
    yield from programs(interpreter)


@pytest.fixture
def run(run_alone: Callable[..., Program]) -> Callable[..., Program]:
    """How the programs of a module start. One whose programs all need torch makes it ``run_with_torch``."""
    return run_alone


@pytest.fixture(scope="session")
def with_torch() -> Iterator[preloaded.Parent]:
    parent = preloaded.Parent()
    yield parent
    parent.close()


@pytest.fixture
def run_with_torch(with_torch: preloaded.Parent) -> Iterator[Callable[..., Program]]:
    """Starts programs that find torch loaded."""
    yield from programs(with_torch.start)


@pytest.fixture
def scheduler() -> Iterator[Callable[..., dict[str, str]]]:
    """Starts a scheduler in this process, and gives the settings of its cluster."""
    threads: list[threading.Thread] = []

    def start(workers: int = 1, servers: int = 1, **settings: str) -> dict[str, str]:
        found = environment(workers, servers, **settings)

        def schedule() -> None:
            try:
                with stepvan.Node({**found, "DMLC_ROLE": "scheduler"}):
                    pass
            except stepvan.Error:  # somebody died, as some tests want
                pass

        threads.append(threading.Thread(target=schedule))
        threads[-1].start()
        return found

    yield start
    for thread in threads:
        thread.join(40)
        assert not thread.is_alive()
