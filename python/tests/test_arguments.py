"""What is said of wrong arguments, and of nodes that were stopped or closed."""

import asyncio
import copy
import pickle
import threading

import numpy as np
import pytest
import torch
from conftest import Cluster, environment

import stepvan
from stepvan import _loop


@pytest.fixture(scope="module")
def c():
    made = Cluster(1, 1)
    try:
        yield made
        made.stop()
    finally:
        made.close()


X = torch.zeros(1)


def exchange(c, push_keys=(1,), pull=None, **options):
    """A request that waits for its answer."""
    pull = torch.zeros(1) if pull is None else pull
    handle = c.workers[0].worker.push_pull([X], push_keys, [pull], [2], **options)
    [request] = c.servers[0].server.get_batch(timeout=10)
    return handle, request


PUSH_PULL = [
    (([X, X], [1, -1], [], []), {}, r"push_keys\[1\] is -1: it must be from 0 to 2\*\*64-1"),
    (([X, X], (1, 2**64), [], []), {}, r"push_keys\[1\] is 18446744073709551616"),
    (([], [], [X], [1.5]), {}, r"pull_keys\[0\] is 1\.5: it must be an integer"),
    (([X] * 10, [*range(9), "k"], [], []), {}, r"push_keys\[9\] is 'k'"),
    (([X], np.array([1.0]), [], []), {}, r"push_keys\[0\] is (np\.float64\()?1\.0\)?:"),
    (([X], torch.tensor([1.0]), [], []), {}, r"push_keys\[0\] is tensor\(1\.\)"),
    (([X], np.array(1), [], []), {}, r"push_keys is array\(1\): it must be a list"),
    (([X], None, [], []), {}, "push_keys is None: it must be a list"),
    ((None, [1], [], []), {}, "push is None: it must be a list"),
    ((torch.zeros(1, 4), [1], [], []), {}, "push is a tensor: it must be a list of tensors"),
    (([], [], np.zeros((1, 4)), [1]), {}, "pull is a tensor: it must be a list of tensors"),
    (([X], [1], [X], [2]), {"label": 5}, "label is 5: it must be text"),
    (([X], [1], [X], [2]), {"label": "\0" + "a" * 500}, r"label is '\\x00a{195}\.\.\. \(506 characters\): it must be text"),
    ((["a" * 500], [1], [], []), {}, r"push\[0\]: 'a{199}\.\.\. \(502 characters\) is not a tensor"),
    (([X], "k" * 198, [], []), {}, "push_keys is 'k{198}': it must be a list"),
    (([X], [1], [X], [2]), {"label": "a\0b"}, "label is .*: it must be text"),
    (([X], [1], [X], [2]), {"label": "\udc80"}, "label is .*: it must be text"),
    (([X], [1], [X], [2]), {"pull_to": "psh"}, "pull_to is 'psh': .* or 'push'"),
    (([X], [1], [X], [2]), {"pull_to": True}, "pull_to is True: .* or 'push'"),
    (([X], [1], [X], [2]), {"pull_to": 1.5}, "pull_to is 1.5: it must be the rank of a server, or a list"),
    (([X], [1], [X], [2]), {"push_to": "0"}, "push_to is '0': it must be the rank of a server, or a list"),
    (([X], [1], [X], [2]), {"push_to": [0, -1]}, r"push_to\[1\] is -1"),
    (([X], [1], [X], [2]), {"push_to": 2**32}, r"push_to\[0\] is 4294967296, which is not a rank"),
    (([X], [1], [X], [2]), {"routing": ["key"]}, r"routing is \['key'\]"),
    (([X], [1], [X], [2]), {"routing": "nearest"}, "routing is 'nearest'"),
    (([X], [1], [X], [2]), {"variable": "yes"}, "variable is 'yes': it must be a list"),
]


@pytest.mark.parametrize(("arguments", "options", "match"), PUSH_PULL)
def test_push_pull(c, arguments, options, match):
    with pytest.raises(stepvan.InvalidError, match="^" + match):
        c.workers[0].worker.push_pull(*arguments, **options)


@pytest.mark.parametrize(
    "keys", [np.array([7]), np.array([7], np.uint64), torch.tensor([7]), [torch.tensor(7)], (np.int8(7),), range(7, 8)]
)
def test_keys_of_every_kind(c, keys):
    handle, request = exchange(c, keys)
    assert request.keys == [7]
    request.respond([X])
    handle.wait(10)


def test_ranks_of_every_kind(cluster):
    c = cluster(STEPVAN_ROUTING="named")
    for to in [0, np.int64(0), [0], np.array([0]), torch.tensor([0])]:
        handle, request = exchange(c, push_to=to, pull_to=to)
        request.respond([X])
        handle.wait(10)


WAITS = [
    lambda c: c.workers[0].worker.push_pull([X], [1], [X], [2]).wait("a"),
    lambda c: c.workers[0].barrier(timeout="a"),
    lambda c: c.servers[0].server.get_batch(timeout="a"),
    lambda c: stepvan.Node(environment(), timeout="a"),
    lambda c: stepvan.Node(environment(), timeout=-1),
    lambda c: stepvan.Node(environment(), timeout=float("nan")),
]


@pytest.mark.parametrize("call", WAITS)
def test_timeouts(cluster, call):
    with pytest.raises(stepvan.InvalidError, match="^timeout is .*: it must be seconds from 0 on, or None for ever"):
        call(cluster())


def test_a_timeout_in_milliseconds():
    with pytest.raises(stepvan.InvalidError, match="timeout_ms is 'a': it must be milliseconds"):
        stepvan.wait(1, "a")


def test_a_barrier_of_nobody(c):
    with pytest.raises(stepvan.InvalidError, match="neither workers nor servers"):
        c.workers[0].barrier(False, False)


SHAPES = ["4", -4, (2, -4), 4.0, (4.0,), None, [[1]]]


@pytest.mark.parametrize("shape", SHAPES)
def test_shapes(c, shape):
    with pytest.raises(stepvan.InvalidError, match="^shape is .*: it must be a number from 0 on, or a list of them"):
        c.workers[0].empty(shape, "float32")


def test_shapes_of_every_kind(c):
    for shape in [6, np.int32(6), [2, 3], (np.int64(6),), torch.Size([6]), np.array([3, 2]), iter([6])]:
        assert c.workers[0].zeros(shape, "float32").numel() == 6
    for shape in [2**70, (2**40, 2**40)]:
        with pytest.raises(stepvan.InvalidError, match="larger than any memory"):
            c.workers[0].empty(shape, "float32")
    with pytest.raises(stepvan.InvalidError, match="dtype is None"):
        c.workers[0].empty(1, None)


SETTINGS = [
    (["a"], r"settings is \['a'\]: it must be a dict"),
    ("DMLC_ROLE", "settings is 'DMLC_ROLE': it must be a dict"),
    (5, "settings is 5: it must be a dict"),
    ({"DMLC_NUM_WORKER": 1}, r"settings\['DMLC_NUM_WORKER'\] is 1: .* values text, or None to unset"),
    ({1: "a" * 300}, r"settings\[1\] is 'a{199}\.\.\. \(302 characters\): names are text"),
    ({1: "a"}, r"settings\[1\] is 'a': names are text"),
    ({"DMLC_ROLE": "worker\0"}, r"settings\['DMLC_ROLE'\] is 'worker\\x00'"),
    ({"DMLC_ROLE": "\udc80"}, r"settings\['DMLC_ROLE'\] is "),
]


@pytest.mark.parametrize(("settings", "match"), SETTINGS)
def test_settings(settings, match):
    with pytest.raises(stepvan.InvalidError, match="^" + match):
        stepvan.Node(settings)


def test_a_start_that_nobody_joins():
    settings = environment()
    for role, missing in [("scheduler", "worker 0 and server 0: not registered"), ("worker", "scheduler .*: does not answer")]:
        with pytest.raises(stepvan.TimeoutError, match=f"(?s){missing}") as info:
            stepvan.Node({**settings, "DMLC_ROLE": role}, timeout=0.3)
        assert "STEPVAN_START_TIMEOUT" in str(info.value)


def test_handlers(c):
    server = c.servers[0].server
    for wrong in [None, "a", 1.5]:
        with pytest.raises(stepvan.InvalidError, match="^handler is .*: it must be an integer"):
            server.respond([X], wrong)
        with pytest.raises(stepvan.InvalidError, match=r"^handler_vec\[0\] is .*: it must be an integer"):
            server.respond_vec(X, [1], [wrong])
    with pytest.raises(stepvan.InvalidError, match="handler_vec is empty"):
        server.respond_vec(X, [], [])
    with pytest.raises(stepvan.InvalidError, match="requests is None"):
        server.respond_vec(X, [], None)
    for kind in [np.int64, np.uint64, torch.tensor]:
        handle, request = exchange(c)
        server.respond([X], kind(request.handler))
        handle.wait(10)
        handle, request = exchange(c)
        server.respond_vec(X, [1], [kind(request.handler)])
        handle.wait(10)


def test_answers_of_another_type(c):
    """Only sizes count: the bytes are written as they are."""
    y = torch.zeros(2, 2)
    handle, request = exchange(c, pull=y)
    with pytest.raises(stepvan.InvalidError, match="the pull of key 2 is too large \\(got 32 bytes, want at most 16\\)"):
        request.respond([torch.ones(4, dtype=torch.float64)])
    with pytest.raises(stepvan.InvalidError, match=r"tensors\[0\]: it is on device meta; .* use \.cpu\(\)"):
        request.respond([torch.ones(4, device="meta")])
    request.respond([torch.full((4,), 0x3F800000, dtype=torch.int32)])
    handle.wait(10)
    assert y.eq(1).all()


AFTER = {
    "push_pull": lambda c, h, r: c.workers[0].worker.push_pull([X], [1], [X], [2]),
    "barrier": lambda c, h, r: c.workers[0].barrier(),
    "get_batch": lambda c, h, r: c.servers[0].server.get_batch(timeout=1),
    "register": lambda c, h, r: c.workers[0].worker.register(torch.zeros(4)),
    "register_recv_buffer": lambda c, h, r: c.servers[0].server.register_recv_buffer(torch.zeros(4), [0], [77]),
    "empty": lambda c, h, r: c.workers[0].empty(3, "float32"),
    "zeros": lambda c, h, r: c.workers[0].zeros(3, "float32"),
}
AFTER_CLOSE = {
    "wait": lambda c, h, r: h.wait(1),
    "done": lambda c, h, r: h.done(),
    "trace": lambda c, h, r: h.trace(),
    "traces": lambda c, h, r: h.traces(),
    "lengths": lambda c, h, r: h.lengths(),
    "operations": lambda c, h, r: h.operations(),
    "respond": lambda c, h, r: c.servers[0].server.respond([X], r.handler),
    "respond_vec": lambda c, h, r: c.servers[0].server.respond_vec(X, [1], [r]),
    "out": lambda c, h, r: r.out(0),
    "input": lambda c, h, r: r.input(0),
    "peers": lambda c, h, r: c.workers[0].peers,
    "check": lambda c, h, r: c.workers[0].check(),
}


def test_after_stop_and_close(cluster):
    c = cluster()
    handle, request = exchange(c)
    response = request.respond([X])
    handle.wait(10)
    c.stop()
    for name, call in AFTER.items():
        with pytest.raises(stepvan.ClosedError, match=f"^{name}: this node was stopped"):
            call(c, handle, request)
    handle.wait(0)
    assert handle.done() and len(handle.trace()) == 8
    assert list(c.servers[0].server) == []
    c.close()
    for name, call in {**AFTER, **AFTER_CLOSE}.items():
        with pytest.raises(stepvan.ClosedError, match=f"^{name}: this node was closed"):
            call(c, handle, request)
    with pytest.raises(stepvan.ClosedError, match="^respond: this node was closed"):
        request.respond()
    with pytest.raises(stepvan.ClosedError, match="^wait: this node was closed"):
        response.wait(1)
    assert list(c.servers[0].server) == []
    c.workers[0].stop()
    c.workers[0].close()


def test_a_close_that_ends_a_wait_says_so(cluster):
    c = cluster()
    handle = c.workers[0].worker.push_pull([X], [1], [torch.zeros(1)], [2])
    seen = []

    def wait():
        entered.set()
        try:
            handle.wait()
        except stepvan.Error as error:
            seen.append(error)

    entered = threading.Event()
    thread = threading.Thread(target=wait)
    thread.start()
    entered.wait()
    c.workers[0].close()
    thread.join(20)
    c.close()
    assert isinstance(seen[0], stepvan.ClosedError) and str(seen[0]).startswith("wait: "), seen


def test_a_loop_without_readers_keeps_no_queue(c, monkeypatch):
    closed = []
    monkeypatch.setattr(_loop, "_close", closed.append)
    handle, request = exchange(c)

    class Loop(asyncio.SelectorEventLoop):
        broken = False

        def add_reader(self, *arguments):
            if self.broken:
                raise NotImplementedError
            return super().add_reader(*arguments)

    async def wait():
        await handle

    loop = Loop()
    loop.broken = True
    with pytest.raises(NotImplementedError):
        loop.run_until_complete(wait())
    loop.close()
    assert len(closed) == 1
    request.respond([X])
    handle.wait(10)


LONG = "x" * 200_000


@pytest.mark.parametrize(
    "arguments, options",
    [
        (([X], [1], [X], [2]), {"label": LONG + "\0"}),
        (([X], [LONG], [X], [2]), {}),
        (([X], LONG, [X], [2]), {}),
        ((LONG, [1], [X], [2]), {}),
        (([X], [1], [X], [2]), {"routing": LONG}),
        (([X], [1], [X], [2]), {"push_to": LONG}),
        (([X], [1], [X], [2]), {"pull_to": LONG}),
    ],
)
def test_errors_cut_long_arguments(c, arguments, options):
    with pytest.raises(stepvan.InvalidError) as error:
        c.workers[0].worker.push_pull(*arguments, **options)
    assert len(str(error.value)) < 1000


def test_other_errors_cut_long_arguments(c):
    for call in (
        lambda: c.workers[0].empty(LONG, "float32"),
        lambda: c.workers[0].empty(1, dtype=LONG),
        lambda: c.servers[0].server.get_batch(policy=LONG),
        lambda: stepvan.Node(LONG),
        lambda: stepvan.Node({LONG: 1}),
        lambda: stepvan.Node({"DMLC_ROLE": LONG}),
        lambda: stepvan.wait(1, LONG),
    ):
        with pytest.raises(stepvan.Error) as error:
            call()
        assert len(str(error.value)) < 1000


def test_errors_cut_labels_that_are_too_many(run, scheduler):
    program = run(
        """
        import stepvan, torch
        with stepvan.Node() as node:
            x = torch.zeros(1)
            def push(label):
                handle = node.worker.push_pull([x], [1], [x], [2], label=label)
                [request] = node.server.get_batch(timeout=10)
                request.respond([x])
                handle.wait(10)
            for i in range(4096):
                push(str(i))
            try:
                push("x" * 200000)
            except stepvan.InvalidError as error:
                print(len(str(error)))
        """,
        {**scheduler(), "DMLC_ROLE": "joint"},
    )
    assert int(program.result()) < 1000


def test_what_belongs_to_a_process_cannot_be_pickled_or_copied(cluster):
    c = cluster()
    worker, server = c.workers[0].worker, c.servers[0].server
    registration = worker.register(torch.zeros(4))
    handle = worker.push_pull([torch.zeros(4)], [1], [torch.zeros(4)], [2])
    (request,) = server.get_batch(timeout=10)
    response = request.respond([torch.zeros(4)])
    handle.wait(10)
    for thing in c.workers[0], worker, server, registration, handle, request, response:
        for copied in pickle.dumps, copy.copy, copy.deepcopy:
            with pytest.raises(TypeError, match=f"{type(thing).__name__}: .* cannot be pickled or copied"):
                copied(thing)
    assert pickle.loads(pickle.dumps(c.workers[0].peers)) == c.workers[0].peers
