"""A mistake of the library, made on purpose: it ends the node, and leaves the interpreter alive."""

import signal

import pytest

SERVER = """
import stepvan
node = stepvan.Node()
try:
    for batch in node.server:
        for request in batch:
            request.respond([t * 2 for t in request.tensors])
except stepvan.PeerLostError as error:
    print(error.subject)
node.close()
"""

WORKER = """
import stepvan, numpy, threading
node = stepvan.Node()
assert node.worker is not None
x, y = numpy.ones(5000), numpy.zeros(5000)
waiting = []

def wait():
    try:
        node.barrier(timeout=60)
    except stepvan.Error as error:
        waiting.append(error)

thread = threading.Thread(target=wait)
thread.start()
try:
    for _ in range(100):
        node.worker.push_pull([x], [1], [y], [2]).wait(20)
except stepvan.InternalError as error:
    print(error)
    assert error.subject == ""
thread.join(30)
assert not thread.is_alive() and isinstance(waiting[0], stepvan.InternalError), waiting
"""

AFTER = """
def fails(call):
    try:
        call()
    except stepvan.InternalError:
        return True
    return False

assert fails(lambda: node.worker.push_pull([x], [3], [y], [4]))
assert fails(node.check)
assert fails(lambda: node.barrier(timeout=20))
assert fails(lambda: node.stop(30))
assert fails(node.stop)
assert node.stopped
node.close()
print("alive")
"""


@pytest.mark.parametrize("van", ["shm", "tcp"])
def test_a_mistake_ends_the_node_and_not_the_interpreter(run, scheduler, van):
    settings = scheduler(STEPVAN_VAN=van)
    server = run(SERVER, {**settings, "DMLC_ROLE": "server"})
    worker = run(WORKER + AFTER, {**settings, "DMLC_ROLE": "worker", "STEPVAN_PANIC_AFTER": "5"})
    report, alive = worker.result().splitlines()
    assert alive == "alive"
    for text in ("internal error: stepvan ", "worker 0: receive a ", "peer server 0 (", "panic: "):
        assert text in report
    assert "goroutine " in worker.error, "the log has the stack"
    assert server.result().startswith("worker 0")


def test_a_mistake_in_a_server(run, scheduler):
    settings = scheduler()
    server = run(SERVER + "\nprint('never')", {**settings, "DMLC_ROLE": "server", "STEPVAN_PANIC_AFTER": "5"})
    worker = run(
        """
        import stepvan, numpy
        node = stepvan.Node()
        x, y = numpy.ones(5000), numpy.zeros(5000)
        try:
            for _ in range(100):
                node.worker.push_pull([x], [1], [y], [2]).wait(20)
        except stepvan.PeerLostError as error:
            print(error.subject)
        node.close()
        """,
        {**settings, "DMLC_ROLE": "worker"},
    )
    assert worker.result().startswith("server 0")
    server.result(expect=1)
    assert "stepvan.InternalError: " in server.error, "a traceback"


def test_another_node_of_the_interpreter_works_on(run, scheduler):
    broken, sound = scheduler(), scheduler()
    server = run(SERVER, {**broken, "DMLC_ROLE": "server"})
    other = run(SERVER.replace("node.close()", "node.stop()"), {**sound, "DMLC_ROLE": "server"})
    worker = run(
        WORKER.replace("node = stepvan.Node()", f"node = stepvan.Node({{**{broken!r}, 'DMLC_ROLE': 'worker', 'STEPVAN_PANIC_AFTER': '5'}})")
        + AFTER
        + f"""
node = stepvan.Node({{**{sound!r}, "DMLC_ROLE": "worker"}})
node.worker.push_pull([x], [1], [y], [2]).wait(20)
assert y[0] == 2
node.stop()
print("and works")
""",
    )
    assert worker.result().splitlines()[-1] == "and works"
    assert server.result().startswith("worker 0")
    other.result()


def test_a_lock_that_is_left_locked_ends_the_process(run, scheduler):
    settings = scheduler(STEPVAN_VAN="tcp")
    server = run(SERVER, {**settings, "DMLC_ROLE": "server"})
    worker = run(WORKER + "\nnode.stop()\nprint('never')", {**settings, "DMLC_ROLE": "worker", "STEPVAN_PANIC_AFTER": "5", "STEPVAN_PANIC_LOCKED": "1"})
    assert "never" not in worker.result(expect=-signal.SIGABRT)
    for text in ("the node cannot be closed", "internal error: stepvan ", "worker 0: receive a ", "peer server 0 ("):
        assert text in worker.error
    assert server.result().startswith("worker 0")
