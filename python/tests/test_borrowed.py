"""STEPVAN_CHECK_BORROWED=1 finds tensors that a program changes while they are borrowed."""

import numpy as np
import pytest

import stepvan


def test_a_push_that_is_changed_too_early(cluster):
    c = cluster(STEPVAN_CHECK_BORROWED="1")
    worker, server = c.workers[0].worker, c.servers[0].server
    x, y = np.zeros(20_000), np.zeros(4)
    for change in (False, True, False):
        handle = worker.push_pull([x], [1], [y], [2])
        (request,) = server.get_batch()
        if change:
            x[-1] += 1
        request.respond([np.ones(4)]).wait()
        if change:
            with pytest.raises(stepvan.InvalidError, match=r"push tensor 0 \(key 1\): it was changed before its handle had finished"):
                handle.wait()
        else:
            handle.wait()


def test_an_answer_that_is_changed_too_early(run, scheduler):
    """In a process of its own, for its log."""
    program = run(
        """
        import numpy as np, stepvan
        with stepvan.Node() as node:
            y, answer = np.zeros(5 << 20), np.ones(5 << 20)
            for attempt in range(50):  # until the change comes before the answer has arrived, as it nearly always does
                handle = node.worker.push_pull([np.zeros(1)], [1], [y], [2])
                (request,) = node.server.get_batch()
                response = request.respond([answer])
                answer += 1
                handle.wait()
                try:
                    response.wait()
                except stepvan.InvalidError as error:
                    print(error)
                    break
        """,
        {**scheduler(), "DMLC_ROLE": "joint", "STEPVAN_CHECK_BORROWED": "1"},
    )
    text = program.result()
    assert "the pull of key 2: it was changed before its response was done" in text, text
    assert "a borrowed tensor was changed" in program.error, program.error
