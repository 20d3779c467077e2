"""Mail and windows of peers, and the board."""

import asyncio
import queue
import threading

import numpy as np
import pytest
import torch

import stepvan


@pytest.fixture
def pair(cluster):
    """Two peers of this process."""
    return [node.peer for node in cluster(0, 0, 2).peers]


def test_mail(pair):
    a, b = pair
    for i in range(5):
        a.mail(1, "topic", bytes([i]) * (i * 3000))
    with b.listen("topic") as box:
        assert [box.get(20) for _ in range(5)] == [(0, bytes([i]) * (i * 3000)) for i in range(5)]
        with pytest.raises(stepvan.TimeoutError):
            box.get(0.01)
        with pytest.raises(stepvan.InvalidError, match="somebody listens to it already"):
            b.listen("topic")
        b.mail(1, "topic", b"own")
        assert next(box) == stepvan.Mail(1, b"own")
    assert list(box) == []
    for call, message in (
        (lambda: a.mail(1, "topic", "text"), "body is 'text': it must be bytes"),
        (lambda: a.mail(1, "t" * 129, b""), "too long"),
        (lambda: a.mail(1, "t", bytes(65537)), "too long"),
        (lambda: a.mail(2, "t", b""), "no such peer"),
        (lambda: a.mail(1, 5, b""), "topic is 5"),
    ):
        with pytest.raises(stepvan.InvalidError, match=message):
            call()


def test_mail_that_nobody_takes_waits(pair):
    a, b = pair
    box = b.listen("topic")
    for i in range(10_000):
        while True:
            try:
                a.mail(1, "topic", b"%d" % i)
                break
            except stepvan.WouldBlockError:
                pass
    assert [box.get(20).body for _ in range(10_000)] == [b"%d" % i for i in range(10_000)]


def test_mail_in_an_event_loop(pair):
    a, b = pair

    async def read():
        found = []
        async for source, body in b.listen("topic"):
            found.append((source, body))
            if len(found) == 3:
                return found

    async def both():
        reader = asyncio.ensure_future(read())
        for i in range(3):
            await asyncio.sleep(0.01)
            a.mail(1, "topic", bytes([i]))
        return await reader

    assert asyncio.run(both()) == [(0, b"\0"), (0, b"\1"), (0, b"\2")]


def test_a_mailbox_ends_with_its_node(cluster):
    c = cluster(0, 0, 2)
    box = c.peers[1].peer.listen("topic")
    reading = c.pool.submit(list, box)
    c.peers[0].peer.mail(1, "topic", b"last")
    c.stop()
    assert reading.result(20) == [(0, b"last")]
    c.close()
    assert list(box) == []


def test_windows(pair):
    a, b = pair
    x = torch.arange(12.0).reshape(3, 4)
    with a.expose(x) as w:
        y, part = torch.zeros(3, 4), np.zeros((2, 2), np.float32).T
        b.get(y, w.token).wait(20)
        b.get(part, w.token, at=(1, 2)).wait(20)
        assert torch.equal(x, y) and (part == x[1:, 2:].numpy()).all() and len(w.token) == 32 and w.notes is None
        with pytest.raises((stepvan.InvalidError, stepvan.RemoteError), match="may only be read"):
            b.put(y, w.token).wait(20)
        for call, message in (
            (lambda: b.get(y, b"short"), "token has 5 bytes .want 32."),
            (lambda: b.get(y, "text"), "token is 'text'"),
            (lambda: b.get(y, bytes(32)), "not the token of a window"),
            (lambda: b.get(y, w.token, at=5), "at is 5"),
            (lambda: b.get(y, w.token, at=(1,)), "at has 1 numbers for a tensor with 2 dimensions"),
            (lambda: b.get(y, w.token, at=(-1, 0)), "negative"),
            (lambda: b.put(y, w.token, note="text"), "note is 'text'"),
            (lambda: a.expose("x"), "x: 'x' is not a tensor"),
            (lambda: a.expose(x.expand(2, 3, 4), write=True), "several elements in one place"),
            (lambda: a.expose(x, peers=["b"]), r"peers\[0\] is 'b'"),
        ):
            with pytest.raises(stepvan.InvalidError, match=message):
                call().wait(20)
        for wrong, at in ((torch.zeros(3, 4), (1, 1)), (torch.zeros(3, 4, dtype=torch.int32), None)):
            with pytest.raises((stepvan.InvalidError, stepvan.RemoteError)):
                b.get(wrong, w.token, at).wait(20)
    with pytest.raises((stepvan.StaleError, stepvan.RemoteError), match="closed"):
        b.get(y, w.token).wait(20)


def test_a_window_for_some(cluster):
    peers = [node.peer for node in cluster(0, 0, 3).peers]
    with peers[0].expose(torch.ones(3), peers=[2]) as w:
        y = torch.zeros(3)
        peers[2].get(y, w.token).wait(20)
        assert y.eq(1).all()
        with pytest.raises(stepvan.RemoteError, match="does not admit peer 1"):
            peers[1].get(y, w.token).wait(20)
    w.close()


def test_notes(pair):
    a, b = pair
    slots, notes = torch.zeros(4, 1000), queue.Queue()
    with a.expose(slots, write=True, on_note=lambda source, note: notes.put((source, note, threading.current_thread()))) as w:
        for i in range(4):
            b.put(torch.full((1, 1000), float(i)), w.token, (i, 0), b"slot %d" % i).wait(20)
        for i in range(4):
            source, note, thread = notes.get(timeout=20)
            assert (source, note) == (1, b"slot %d" % i) and thread is not threading.main_thread()
            assert slots[i].eq(i).all()
    with a.expose(slots, write=True, on_note=True) as w:
        b.put(slots, w.token, note=b"").wait(20)
        assert w.notes.get(20) == (1, b"")


def test_the_board(cluster):
    c = cluster(1, 1, 1)
    boards = [node.board for node in c.nodes]
    assert boards[0].watch("test/", timeout=20) == []
    later = c.pool.submit(boards[1].watch, "test/", lambda entries: len(entries) == 4, 20)
    for i, board in enumerate(boards):
        board.post(f"test/{i}", bytes([i]) * 1000 * i, 20)
    entries = later.result(20)
    assert [(e.key, e.value) for e in entries] == [(f"test/{i}", bytes([i]) * 1000 * i) for i in range(4)]
    assert [e.owner for e in entries] == ["scheduler", "worker 0", "server 0", "peer 0"] and sorted(e.order for e in entries) == [e.order for e in entries]
    with pytest.raises(stepvan.RemoteError) as info:
        boards[2].post("test/1", b"", 20)
    assert info.value.subject == "worker 0"
    with pytest.raises(stepvan.RemoteError):
        boards[2].remove("test/1", 20)
    boards[1].remove("test/1", 20)
    assert len(boards[3].watch("test/", lambda entries: len(entries) == 3, 20)) == 3
    for call, message in (
        (lambda: boards[1].post("", b"", 20), "key"),
        (lambda: boards[1].post("a", bytes(4097), 20), "4096|4,096|too long"),
        (lambda: boards[1].post("a", "text"), "value is 'text': it must be bytes"),
        (lambda: boards[1].post(5, b""), "key is 5"),
        (lambda: boards[1].watch(None), "prefix is None"),
    ):
        with pytest.raises(stepvan.InvalidError, match=message):
            call()
    with pytest.raises(stepvan.TimeoutError):
        boards[1].watch("none/", lambda entries: entries, 0.05)
    for _ in range(70):  # each ends its watch
        boards[1].watch("test/", timeout=20)


def test_put_rows(pair):
    a, b = pair
    slot = torch.zeros(6, 1000)
    notes = queue.Queue()
    rows = torch.arange(8000.0).reshape(8, 1000)
    with a.expose(slot, write=True, on_note=lambda source, note: notes.put((source, note))) as w:
        for numbers in (torch.tensor([7, 0, 7]), np.array([7, 0, 7])):
            slot.zero_()
            b.put_rows(rows, numbers, w.token, (2, 0), b"whole").wait(20)
            assert notes.get(timeout=20) == (1, b"whole")
            assert torch.equal(slot[2:5], rows[[7, 0, 7]])
            assert not slot[:2].any() and not slot[5:].any()
        some = torch.tensor([1])
        for call, message in (
            (lambda: b.put_rows(rows, torch.tensor([0, 8]), w.token), "number 1 is out of range"),
            (lambda: b.put_rows(rows, torch.tensor([0, -1]), w.token), "number 1 is out of range"),
            (lambda: b.put_rows(rows.T, some, w.token), "not contiguous"),
            (lambda: b.put_rows(rows[0], some, w.token), "not contiguous"),
            (lambda: b.put_rows(rows, torch.tensor([1.0]), w.token), "not numbers of rows"),
            (lambda: b.put_rows(rows, torch.tensor([[1]]), w.token), "not numbers of rows"),
            (lambda: b.put_rows(rows, some, b"short"), "token has 5 bytes"),
            (lambda: b.put_rows(rows, some, w.token, (6, 0)).wait(20), "leaves the window"),
            (lambda: b.put_rows(rows[:, :10], torch.tensor([1, 2]), w.token).wait(20), "not contiguous"),
        ):
            with pytest.raises(stepvan.InvalidError, match=message):
                call()
