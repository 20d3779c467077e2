"""The program of a server."""

from array import array
from collections.abc import Sequence
from time import thread_time_ns
from typing import Any

import numpy as np

import stepvan
from stepvan._bench.spec import Meter, Spec, answer_to, push_key
from stepvan._bench.work import Words


class Server:
    """Answers until every worker has ended the round. One thread."""

    def __init__(self, node: stepvan.Node, spec: Spec, dtype: Any) -> None:
        assert node.server is not None
        self._node, self._server, self._spec = node, node.server, spec
        self._last: stepvan.Response | None = None
        self.times = array("q")
        self._end = [node.zeros(1, dtype)]
        keys = {push_key(rank, slot): rank for rank in range(spec.workers) for slot in range(spec.inflight)}
        if not spec.in_place:
            chunks = node.zeros(spec.push * len(keys), dtype)
            self._chunks = self._server.register_recv_buffer(chunks, list(keys.values()), list(keys))
            if spec.work:
                self._pushed = {key: Words(chunks[i * spec.push : (i + 1) * spec.push], spec.work.fresh) for i, key in enumerate(keys)}
        if spec.workload == "batch":
            self._buffer = node.zeros(spec.workers * spec.pull, dtype)
        if not spec.in_place and not spec.returns_pushes:
            self._answers = {key: [node.zeros(spec.pull, dtype)] for key in keys}
            if spec.work:
                self._written = {key: Words(tensor, spec.work.fresh) for key, [tensor] in self._answers.items()}

    def measure(self, count: int) -> dict[str, Any]:
        """Serves a round until the workers end it. With workload batch, ``times`` gets each batch's processor time."""
        meter = Meter()
        if self._spec.workload == "batch":
            self._batches(count)
        if self._spec.work:
            self._serve_working()
        elif self._spec.in_place:
            self._serve_in_place()
        elif self._spec.echoes:
            self._serve_echo()
        else:
            self._serve_own()
        return meter.read()

    def check(self, count: int) -> None:
        """Serves with answers that depend on what was pushed."""
        ended, mark = 0, self._spec.mark(self._node.server_rank)
        while ended < self._spec.workers:
            batch = self._server.get_batch(self._spec.policy)
            if self._spec.workload == "batch" and batch[0].keys:
                self._check_batch(batch)
                continue
            for request in batch:
                if not request.keys:
                    ended += 1
                    self._respond(request, self._end)
                    continue
                pushed = request.input(0) if self._spec.in_place else request.tensors[0]
                answer = pushed
                if not self._spec.returns_pushes:
                    answer = request.out(0) if self._spec.in_place else self._answers[request.keys[0]][0]
                    np.asarray(answer)[:] = answer_to(np.asarray(pushed), self._spec.pull, mark)
                self._respond(request, [answer])

    def stop(self) -> None:
        """Stops the node."""
        self._node.stop()

    def _check_batch(self, batch: list[stepvan.Request]) -> None:
        rows = np.asarray(self._buffer).reshape(self._spec.workers, -1)
        for row, request in zip(rows, batch, strict=True):
            row[:] = np.asarray(request.tensors[0])
        self._server.respond_vec(self._buffer, [r.tensors for r in batch], batch)

    def _batches(self, count: int) -> None:
        """Takes and answers ``count`` batches that are there: a barrier tells that all workers have pushed."""
        get_batch, respond_vec, now, buffer = self._server.get_batch, self._server.respond_vec, thread_time_ns, self._buffer
        self.times = times = array("q", bytes(8 * count))
        for first in range(0, count, self._spec.inflight):
            self._node.barrier()
            for i in range(first, min(first + self._spec.inflight, count)):
                began = now()
                batch = get_batch("lockstep")
                respond_vec(buffer, [r.tensors for r in batch], batch)
                times[i] = now() - began
            self._node.barrier()

    def _serve_echo(self) -> None:
        get_batch, policy, ended, last = self._server.get_batch, self._spec.policy, 0, None
        while ended < self._spec.workers:
            for request in get_batch(policy):
                if not request.keys:
                    ended += 1
                    self._respond(request, self._end)
                    continue
                try:
                    last = request.respond(request.tensors)
                except stepvan.WouldBlockError:
                    last = self._when_there_is_room(last, request, request.tensors)

    def _serve_own(self) -> None:
        """Answers with buffers of its own."""
        get_batch, policy, ended, last, answers = self._server.get_batch, self._spec.policy, 0, None, self._answers
        while ended < self._spec.workers:
            for request in get_batch(policy):
                keys = request.keys
                if not keys:
                    ended += 1
                    self._respond(request, self._end)
                    continue
                request.tensors[0]  # the program would compute with it
                try:
                    last = request.respond(answers[keys[0]])
                except stepvan.WouldBlockError:
                    last = self._when_there_is_room(last, request, answers[keys[0]])

    def _serve_in_place(self) -> None:
        """Reads pushes where they are and writes answers where the worker wants them."""
        get_batch, policy, ended, last = self._server.get_batch, self._spec.policy, 0, None
        while ended < self._spec.workers:
            for request in get_batch(policy):
                if not request.keys:
                    ended += 1
                    self._respond(request, self._end)
                    continue
                request.input(0)
                answer = [request.out(0)]
                try:
                    last = request.respond(answer)
                except stepvan.WouldBlockError:
                    last = self._when_there_is_room(last, request, answer)

    def _serve_working(self) -> None:
        """Answers with the work of a program, to one request at a time."""
        get_batch, policy, ended, work = self._server.get_batch, self._spec.policy, 0, self._spec.work
        while ended < self._spec.workers:
            for request in get_batch(policy):
                keys = request.keys
                if not keys:
                    ended += 1
                    self._respond(request, self._end)
                    continue
                answer: Sequence[Any]
                if self._spec.in_place:
                    pushed, answer = Words(request.input(0), work.fresh), [request.out(0)]
                    written = Words(answer[0], work.fresh)
                elif self._spec.returns_pushes:
                    answer = request.tensors
                    pushed = written = self._pushed[keys[0]]
                else:
                    request.tensors[0]
                    pushed, written, answer = self._pushed[keys[0]], self._written[keys[0]], self._answers[keys[0]]
                work.answer(pushed, written)
                self._respond(request, answer)

    def _respond(self, request: stepvan.Request, tensors: Sequence[Any]) -> None:
        """Answers outside of what is measured."""
        try:
            self._last = request.respond(tensors)
        except stepvan.WouldBlockError:
            self._last = self._when_there_is_room(self._last, request, tensors)

    def _when_there_is_room(self, last: stepvan.Response | None, request: stepvan.Request, tensors: Sequence[Any]) -> stepvan.Response:
        """Answers when the queue is full: after the response before."""
        while True:
            if last is None or last.done():
                return request.respond(tensors)
            last.wait()
