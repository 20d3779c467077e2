"""The connector's logic, on nodes in one process without stepvan."""

from __future__ import annotations

from types import SimpleNamespace

import fake
import pytest
import torch
from afd import AFDConnectorMetadata, BadRequestError, ConnectorConfig, RefusedError, StepvanAFDConnector
from afd.keys import HEADER, HIDDEN as ROWS, push_key

HIDDEN, TOKENS, SEQS, STAGES = 4, 8, 3, 2


def config(role, **other):
    return ConnectorConfig(role, HIDDEN, TOKENS, num_stages=STAGES, max_num_seqs=SEQS, **other)


def connect(workers=1, servers=1):
    """Started connectors of all workers and of all servers."""
    cluster = fake.Cluster(workers, servers)
    ffn = [StepvanAFDConnector(config("ffn"), s.attach()) for s in cluster.servers]
    attention = [StepvanAFDConnector(config("attention"), w.node) for w in cluster.workers]
    for connector in [*ffn, *attention]:
        connector.init_afd_connector()
    return attention, ffn


def about(layer, stage, *seq_lens):
    return AFDConnectorMetadata.create_attention_metadata(layer, stage, seq_lens, torch.float32)


def rows(value, count):
    return torch.full((count, HIDDEN), float(value))


def test_one_exchange_of_several_sequences():
    (worker,), (server,) = connect()
    sent = worker.send_attn_output(rows(3, 6), about(5, 1, 1, 3, 2))
    assert not sent.done()
    hidden, metadata = server.recv_attn_output(timeout_ms=100)
    assert torch.equal(hidden, rows(3, 6))
    assert (metadata.layer_idx, metadata.stage_idx, metadata.seq_lens) == (5, 1, [1, 3, 2])
    assert (metadata.worker_tokens, metadata.get_split_indices()) == ([6], [1, 4])
    server.send_ffn_output(hidden * 2, metadata)
    assert sent.done()
    assert torch.equal(worker.recv_ffn_output(), rows(6, 6))


def test_stages_in_flight_are_answered_in_any_order_with_lengths_that_change():
    (worker,), (server,) = connect()
    for turn, (a, b) in enumerate([(1, 8), (8, 1), (2, 2)]):
        first = worker.send_attn_output(rows(turn + 1, a), about(turn, 0, a))
        second = worker.send_attn_output(rows(turn + 10, b), about(turn + 1, 1, b))
        received = [server.recv_attn_output() for _ in range(2)]
        for hidden, metadata in reversed(received):
            assert len(hidden) == metadata.total_tokens
            server.send_ffn_output(hidden + metadata.layer_idx, metadata)
        assert torch.equal(worker.recv_ffn_output(second), rows(2 * turn + 11, b))
        assert torch.equal(worker.recv_ffn_output(first), rows(2 * turn + 1, a))


def test_results_come_in_the_order_of_sending():
    (worker,), (server,) = connect()
    for stage in (1, 0):
        worker.send_attn_output(rows(stage, 1), about(0, stage, 1))
    for hidden, metadata in server.received():
        server.send_ffn_output(hidden, metadata)
    assert [worker.recv_ffn_output()[0, 0].item() for _ in range(2)] == [1, 0]


def test_answers_of_all_servers_are_added():
    (worker,), servers = connect(servers=3)
    worker.send_attn_output(rows(1, 2), about(0, 0, 2))
    for factor, server in zip((1, 10, 100), servers):
        hidden, metadata = server.recv_attn_output()
        server.send_ffn_output(hidden * factor, metadata)
    assert torch.equal(worker.recv_ffn_output(), rows(111, 2))


def test_workers_in_one_stage_are_merged_and_answered_apart():
    workers, (server,) = connect(workers=3)
    for worker, (layer, lengths) in zip(workers, [(4, (2, 1)), (4, (5,)), (3, (1,))]):
        worker.send_attn_output(rows(layer + sum(lengths), sum(lengths)), about(layer, 0, *lengths))
    (merged, metadata), (other, late) = server.received()
    assert (metadata.layer_idx, metadata.seq_lens, metadata.worker_tokens) == (4, [2, 1, 5], [3, 5])
    assert torch.equal(merged, torch.cat([rows(7, 3), rows(9, 5)]))
    assert (late.layer_idx, late.seq_lens, len(other)) == (3, [1], 1)
    server.send_ffn_output(-other, late)
    server.send_ffn_output(-merged, metadata)
    for worker, want in zip(workers, [rows(-7, 3), rows(-9, 5), rows(-4, 1)]):
        assert torch.equal(worker.recv_ffn_output(), want)


def test_computing_in_the_buffers_copies_nothing():
    (worker,), (server,) = connect()
    hidden = worker.attn_output_buffer(1, 4)
    hidden.fill_(2)
    worker.send_attn_output(hidden, about(0, 1, 4))
    received, metadata = server.recv_attn_output()
    out = server.ffn_output_buffer(metadata)
    torch.mul(received, 3, out=out)
    server.send_ffn_output(out, metadata)
    result = worker.recv_ffn_output()
    assert torch.equal(result, rows(6, 4))
    assert result.data_ptr() == out.data_ptr()


def test_a_buffer_for_the_rows_of_several_workers():
    workers, (server,) = connect(workers=2)
    for worker in workers:
        worker.send_attn_output(rows(1, 3), about(0, 0, 3))
    hidden, metadata = server.recv_attn_output()
    out = server.ffn_output_buffer(metadata)
    assert out.shape == (6, HIDDEN)
    server.send_ffn_output(out.copy_(hidden), metadata)
    assert all(torch.equal(w.recv_ffn_output(), rows(1, 3)) for w in workers)


def test_a_timed_out_exchange_is_still_in_flight():
    (worker,), (server,) = connect()
    with pytest.raises(TimeoutError):
        server.recv_attn_output(timeout_ms=1)
    worker.send_attn_output(rows(1, 1), about(0, 0, 1))
    with pytest.raises(TimeoutError, match=r"0\.002 s"):
        worker.recv_ffn_output(timeout_ms=2)
    server.send_ffn_output(*server.recv_attn_output())
    assert torch.equal(worker.recv_ffn_output(), rows(1, 1))


def test_calls_out_of_turn():
    (worker,), (server,) = connect()
    with pytest.raises(RuntimeError, match="nothing is in flight"):
        worker.recv_ffn_output()
    sent = worker.send_attn_output(rows(1, 1), about(0, 0, 1))
    with pytest.raises(RuntimeError, match="stage 0 is in flight"):
        worker.send_attn_output(rows(1, 1), about(1, 0, 1))
    hidden, metadata = server.recv_attn_output()
    server.send_ffn_output(hidden, metadata)
    with pytest.raises(RuntimeError, match="answered already"):
        server.send_ffn_output(hidden, metadata)
    worker.recv_ffn_output(sent)
    with pytest.raises(RuntimeError, match="received already"):
        worker.recv_ffn_output(sent)
    with pytest.raises(RuntimeError, match="an attention connector does not"):
        worker.recv_attn_output()
    with pytest.raises(RuntimeError, match="init_afd_connector"):
        StepvanAFDConnector(config("ffn")).recv_attn_output()


@pytest.mark.parametrize(
    ("hidden", "metadata", "match"),
    [
        (rows(1, 2), about(0, STAGES, 2), "stage 2"),
        (rows(1, 2), about(0, -1, 2), "stage -1"),
        (rows(1, 9), about(0, 0, 9), "9 tokens"),
        (rows(1, 4), about(0, 0, 1, 1, 1, 1), "4 sequences"),
        (rows(1, 3), about(0, 0, 2), "say"),
        (rows(1, 2).double(), about(0, 0, 2), "float64"),
        (torch.zeros(2, HIDDEN + 1), about(0, 0, 2), "say"),
    ],
)
def test_what_does_not_fit_is_not_sent(hidden, metadata, match):
    (worker,), (server,) = connect()
    with pytest.raises(ValueError, match=match):
        worker.send_attn_output(hidden, metadata)
    assert not server.node.server.queue


def test_an_answer_that_does_not_fit_can_be_given_again():
    (worker,), (server,) = connect()
    worker.send_attn_output(rows(1, 2), about(0, 0, 2))
    hidden, metadata = server.recv_attn_output()
    for bad in (rows(1, 3), hidden.double()):
        with pytest.raises(ValueError, match="asked for"):
            server.send_ffn_output(bad, metadata)
    server.send_ffn_output(hidden, metadata)
    assert torch.equal(worker.recv_ffn_output(), rows(1, 2))


class QueueIsFullError(Exception):
    """In place of stepvan.WouldBlockError."""


@pytest.mark.parametrize("failing", [(0,), (1,), (2,), (0, 2)])
def test_an_answer_that_fails_for_one_worker_can_be_given_again(failing):
    workers, (server,) = connect(workers=3)
    for count, worker in enumerate(workers, 1):
        worker.send_attn_output(rows(count, count), about(0, 0, count))
    hidden, metadata = server.recv_attn_output()
    for i in failing:
        metadata.recv_handle_list[i].failures.append(QueueIsFullError(f"worker {i}"))
    with pytest.raises(QueueIsFullError, match=f"worker {failing[0]}"):
        server.send_ffn_output(hidden * 2, metadata)
    for i, worker in enumerate(workers):
        if i not in failing:
            assert torch.equal(worker.recv_ffn_output(), rows(2 * i + 2, i + 1))
    assert server.ffn_output_buffer(metadata).shape == hidden.shape
    server.send_ffn_output(hidden * 3, metadata)
    for i in failing:
        assert torch.equal(workers[i].recv_ffn_output(), rows(3 * i + 3, i + 1))
    with pytest.raises(RuntimeError, match="answered already"):
        server.send_ffn_output(hidden, metadata)


TWO = torch.tensor([0, 2])
OURS = [push_key(ROWS, 0, 0), push_key(HEADER, 0, 0)]
BAD = {
    "no header": ([rows(1, 2)], OURS[:1], rows(0, 2)),
    "a header of another type": ([rows(1, 2), TWO.double()], OURS, rows(0, 2)),
    "a header of two dimensions": ([rows(1, 2), TWO.view(1, 2)], OURS, rows(0, 2)),
    "an empty header": ([rows(1, 2), TWO[:0]], OURS, rows(0, 2)),
    "no sequences": ([rows(1, 2), TWO[:1]], OURS, rows(0, 2)),
    "sequences of other lengths": ([rows(1, 2), TWO + 1], OURS, rows(0, 2)),
    "a negative length": ([rows(1, 2), torch.tensor([0, 3, -1])], OURS, rows(0, 2)),
    "a negative layer": ([rows(1, 2), torch.tensor([-1, 2])], OURS, rows(0, 2)),
    "another width": ([torch.zeros(2, 3), TWO], OURS, torch.zeros(2, 3)),
    "another type": ([rows(1, 2).double(), TWO], OURS, rows(0, 2).double()),
    "other keys": ([rows(1, 2), TWO], [50, 51], rows(0, 2)),
    "a pull of another shape": ([rows(1, 2), TWO], OURS, rows(0, 3)),
    "a pull of another type": ([rows(1, 2), TWO], OURS, rows(0, 2).int()),
}


def send_bad(worker, what, **options):
    tensors, keys, result = BAD[what]
    return worker.node.worker.push_pull(tensors, keys, [result], [99], label="", **options)


@pytest.mark.parametrize("what", BAD)
def test_a_bad_request_is_refused_and_the_others_are_served(what, caplog):
    (bad, good), (server,) = connect(workers=2)
    handle = send_bad(bad, what, variable=True)
    good.send_attn_output(rows(1, 2), about(0, 0, 2))
    server.send_ffn_output(*server.recv_attn_output())
    assert torch.equal(good.recv_ffn_output(), rows(1, 2))
    (got,) = handle.lengths()
    assert 0 < got < fake.size(handle.results[0])
    assert "refused a request: worker 0 " in caplog.text
    with pytest.raises(TimeoutError):
        server.recv_attn_output(timeout_ms=1)


def test_a_worker_with_another_configuration_is_told():
    cluster = fake.Cluster(1, 1)
    server = StepvanAFDConnector(config("ffn", dtype=torch.float16), cluster.servers[0].attach())
    worker = StepvanAFDConnector(config("attention"), cluster.workers[0].node)
    for connector in (server, worker):
        connector.init_afd_connector()
    for _ in range(2):  # the stage is free again
        worker.send_attn_output(rows(1, 5), about(0, 1, 5))
        with pytest.raises(TimeoutError):
            server.recv_attn_output(timeout_ms=1)
        with pytest.raises(RefusedError, match="server 0 has refused stage 1: worker 0 sent torch.float32"):
            worker.recv_ffn_output()


@pytest.mark.parametrize("fixed", [True, False])
def test_a_request_that_cannot_be_refused_is_given_to_the_program(fixed):
    (bad, good), (server,) = connect(workers=2)
    handle = send_bad(bad, "no sequences", variable=not fixed)
    good.send_attn_output(rows(1, 2), about(0, 0, 2))
    if not fixed:
        server.node.server.queue[0].failures.append(QueueIsFullError("the queue is full"))
    server.send_ffn_output(*server.recv_attn_output())
    assert torch.equal(good.recv_ffn_output(), rows(1, 2))
    with pytest.raises(BadRequestError, match="fixed length" if fixed else "the queue is full") as caught:
        server.recv_attn_output()
    assert not handle.done()
    caught.value.request.respond()
    assert handle.done()
    with pytest.raises(TimeoutError):
        server.recv_attn_output(timeout_ms=1)


def test_received_goes_on_after_a_bad_request():
    (bad, good), (server,) = connect(workers=2)
    send_bad(bad, "no sequences")
    good.send_attn_output(rows(1, 2), about(0, 0, 2))
    received = server.received()
    server.send_ffn_output(*next(received))
    with pytest.raises(BadRequestError):
        next(received)
    good.recv_ffn_output()
    good.send_attn_output(rows(3, 1), about(1, 0, 1))
    for hidden, metadata in server.received():
        server.send_ffn_output(hidden, metadata)
    assert torch.equal(good.recv_ffn_output(), rows(3, 1))


def test_a_lost_server_ends_the_exchange_and_frees_the_stage():
    (worker,), (server,) = connect()
    first, second = (worker.send_attn_output(rows(i, 1), about(0, i, 1)) for i in range(2))
    first.handle.lose(ConnectionError("server 0 is gone"))
    for hidden, metadata in server.received():
        if metadata.stage_idx == 1:
            server.send_ffn_output(hidden, metadata)
    with pytest.raises(ConnectionError, match="server 0"):
        worker.recv_ffn_output()
    with pytest.raises(RuntimeError, match="received already"):
        worker.recv_ffn_output(first)
    assert torch.equal(worker.recv_ffn_output(), rows(1, 1))
    worker.send_attn_output(rows(7, 1), about(0, 0, 1))
    server.send_ffn_output(*server.recv_attn_output())
    assert torch.equal(worker.recv_ffn_output(), rows(7, 1))


def test_a_node_of_the_caller_is_not_stopped():
    (worker,), (server,) = connect()
    for connector in (worker, server, worker):
        connector.close()
        assert not connector.is_initialized and not connector.node.stopped
    with worker:
        assert worker.is_initialized


@pytest.mark.parametrize(
    ("change", "match"),
    [({"role": "server"}, "role"), ({"num_stages": 0}, "stages"), ({"num_stages": 257}, "stages")]
    + [({name: 0}, name) for name in ("hidden_size", "max_num_tokens", "max_num_seqs")],
)
def test_impossible_configurations(change, match):
    with pytest.raises(ValueError, match=match):
        ConnectorConfig(**{"role": "ffn", "hidden_size": 1, "max_num_tokens": 1, **change})


@pytest.mark.parametrize("lengths", [(), (3, 0), (-1,)])
def test_impossible_sequence_lengths(lengths):
    with pytest.raises(ValueError, match="seq_lens"):
        about(0, 0, *lengths)


def test_configuration_from_vllm():
    vllm = SimpleNamespace(
        afd_config=SimpleNamespace(
            afd_role="ffn",
            num_afd_stages=3,
            num_attention_servers=2,
            num_ffn_servers=1,
            afd_server_rank=0,
            afd_host="127.0.0.1",
            afd_port=1239,
        ),
        parallel_config=SimpleNamespace(tensor_parallel_size=2, pipeline_parallel_size=1, data_parallel_size=4),
        scheduler_config=SimpleNamespace(max_num_batched_tokens=100, max_num_seqs=16),
        model_config=SimpleNamespace(dtype=torch.bfloat16, hf_config=SimpleNamespace(hidden_size=7168)),
    )
    got = StepvanAFDConnector.from_vllm(5, 5, vllm).config
    assert (got.max_num_tokens, got.dtype, got.hidden_size) == (34, torch.bfloat16, 7168)
    settings = got.node_settings()
    assert settings["DMLC_ROLE"] == "server"
    assert settings["DMLC_GROUP_SIZE"] == "8"
    assert settings["STEPMESH_GPU"] == "5"
    assert settings["DMLC_PS_ROOT_PORT"] == "1239"
