"""The functions on one node per process: before init, after stop, and whose memory ``empty`` gives."""

import pytest
import torch

import fserver_lib
import stepvan

X = torch.zeros(1)


def test_before_init():
    for call in [
        lambda: stepvan.push_pull([X], [1], [X], [2]),
        lambda: stepvan.wait(1),
        lambda: stepvan.get_batch(),
        lambda: stepvan.respond([X], 1),
        lambda: stepvan.barrier(True, True),
        lambda: stepvan.register_recv_buffer(X, [0], [1]),
        lambda: stepvan.empty(1, "float32"),
        lambda: fserver_lib.get_batch(),
        lambda: fserver_lib.regist_push_pull_buffer(X, [0], X, [0]),
    ]:
        with pytest.raises(stepvan.InvalidError, match=r"stepvan\.init\(\) was not called"):
            call()


def test_init_again(run, scheduler):
    program = run(
        """
        import stepvan, torch, fserver_lib as f
        def said(call, *arguments):
            try:
                call(*arguments)
            except stepvan.Error as error:
                print(type(error).__name__, error)
        node = stepvan.init()
        said(stepvan.init)
        assert stepvan.zeros(3, "float32").sum() == 0
        stepvan.stop()
        said(stepvan.push_pull, [], [], [], [])
        said(f.get_batch)
        said(stepvan.empty, 3, "float32")
        node.close()
        said(stepvan.wait, 1)
        said(stepvan.get_batch)
        said(f.get_batch)
        """,
        {**scheduler(), "DMLC_ROLE": "joint"},
    )
    lines = program.result().splitlines()
    for line, want in zip(
        lines,
        [
            "InvalidError stepvan.init() was called before",
            "ClosedError push_pull: this node was stopped",
            "ClosedError get_batch: this node was stopped",
            "ClosedError the node of stepvan.init() was stopped",
            "ClosedError wait: this node was closed",
            "ClosedError get_batch: this node was closed",
            "ClosedError get_batch: this node was closed",
        ],
        strict=True,
    ):
        assert line.startswith(want)


def test_empty_takes_a_node_that_lives(cluster):
    """Without init: the only worker or server that has not stopped."""
    with pytest.raises(stepvan.InvalidError, match="no Node"):
        stepvan.empty(1, "float32")
    first = cluster()
    with pytest.raises(stepvan.InvalidError, match="there are 2 nodes, .* of one of them"):
        stepvan.empty(1, "float32")
    first.servers[0].close()
    assert stepvan.zeros(3, "float32").numel() == 3
    first.close()
    with pytest.raises(stepvan.InvalidError, match="no Node"):
        stepvan.zeros(1, "float32")


def test_empty_is_of_the_node_of_init(run, scheduler):
    program = run(
        """
        import stepvan
        node = stepvan.init()
        other = stepvan.Node({"DMLC_PS_ROOT_PORT": __import__("sys").argv[1]})
        assert len(stepvan.zeros(3, "float32")) == 3  # of node, though there are two
        stepvan.stop()
        assert len(stepvan.zeros(3, "float32")) == 3  # of other, as node has stopped
        other.stop()
        try:
            stepvan.zeros(3, "float32")
        except stepvan.ClosedError:
            print("closed")
        """,
        {**scheduler(), "DMLC_ROLE": "joint"},
        scheduler()["DMLC_PS_ROOT_PORT"],
    )
    assert program.result() == "closed\n"
