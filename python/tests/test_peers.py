"""Nodes with the role peer."""

import copy

import pytest

import stepvan
from conftest import environment


def test_peers_alone(cluster):
    c = cluster(0, 0, 3)
    for rank, node in enumerate(c.peers):
        assert (node.role, node.worker, node.server, node.worker_rank, node.server_rank) == ("peer", None, None, -1, -1)
        assert (node.peer.rank, node.peer.size) == (rank, 3)
        assert [(p.role, p.rank) for p in node.peers] == [("peer", other) for other in range(3) if other != rank]
        assert repr(node) == f"<stepvan.Node: peer {rank}>"
    list(c.pool.map(lambda node: node.barrier(timeout=20), c.peers))
    list(c.pool.map(lambda node: node.barrier(False, False, peers=True, scheduler=True, timeout=20), c.nodes))


def test_peers_beside_others(cluster):
    c = cluster(1, 1, 2)
    assert c.workers[0].peer is None
    assert [p.role for p in c.workers[0].peers] == ["server"]
    assert sorted(p.role for p in c.nodes[0].peers) == ["peer", "peer", "server", "worker"]
    list(c.pool.map(lambda node: node.barrier(timeout=20), c.nodes[1:]))  # each over the roles of its kind
    list(c.pool.map(lambda node: node.barrier(True, True, peers=True, timeout=20), c.nodes[1:]))
    with pytest.raises(stepvan.InvalidError, match="not in the group"):
        c.peers[0].barrier(True, True, peers=False)


def test_a_single_peer(cluster):
    c = cluster(0, 0, 1)
    assert c.peers[0].peers == []
    assert c.peers[0].peer.size == 1
    c.peers[0].barrier(timeout=20)
    with pytest.raises(TypeError, match="belongs to this process"):
        copy.copy(c.peers[0].peer)
    with pytest.raises(stepvan.InvalidError, match="neither workers nor servers nor peers"):
        c.peers[0].barrier(peers=False)


def test_the_death_of_a_peer_fails_what_names_it(cluster):
    c = cluster(1, 1, 2)
    c.peers[1].close()
    with pytest.raises(stepvan.PeerLostError, match="peer 1"):
        c.peers[0].barrier(timeout=20)
    for node in (c.peers[0], c.workers[0], c.servers[0]):
        node.check()  # the cluster works
    list(c.pool.map(lambda node: node.barrier(timeout=20), [c.workers[0], c.servers[0]]))
    for node in [*c.nodes[:3], c.peers[0]]:
        c.pool.submit(node.stop, 20)
    c.pool.shutdown()
    c.open = False


def test_a_peer_needs_a_number():
    settings = environment(**{"DMLC_ROLE": "peer"})
    with pytest.raises(stepvan.ConfigError, match="STEPVAN_NUM_PEER"):
        stepvan.Node(settings)
