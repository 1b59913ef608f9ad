"""A client whose map names the wrong owner of a document is sent to the right one, and stays there."""

import contextlib
import json

from couchbase_fake_node import VBUCKETS, FakeNode, vbucket_of
from couchbase_sdk import cluster_of

KEYS = [f"document-{i}" for i in range(40)]


def owned(config, later, ports, owner_of):
    """The configuration, `later` by so many revisions, with a node for each of `ports`, of which that at
    `owner_of(vbucket)` has the vbucket."""
    config["rev"] += later
    if "vBucketServerMap" not in config:
        # Without a bucket there are only nodes to begin with: the first.
        ports = ports[:1]
    config["nodesExt"] = [{"hostname": "127.0.0.1", "services": {"kv": port}} for port in ports]
    config["nodesExt"][0]["thisNode"] = True
    if "vBucketServerMap" in config:
        addresses = [f"127.0.0.1:{port}" for port in ports]
        config["nodes"] = [{"hostname": address, "ports": {"direct": port}} for address, port in zip(addresses, ports)]
        owners = [[owner_of(vbucket)] for vbucket in range(VBUCKETS)]
        config["vBucketServerMap"] |= {"serverList": addresses, "vBucketMap": owners}
    return config


def assert_sent_away_once(node, key, collection):
    """The node has sent away whoever asked for `key`, and is not asked for anything else."""
    assert set(node.sent_away) == {vbucket_of(key)}
    before = len(node.sent_away)
    for key in KEYS:
        collection.upsert(key, {"turn": 1})
        assert collection.get(key).content_as[dict] == {"turn": 1}
    assert len(node.sent_away) == before, "the client went back"


def assert_written(server):
    with contextlib.closing(server.memcached()) as memcached:
        assert [json.loads(memcached.get(key)) for key in KEYS] == [{"turn": 1}] * len(KEYS)


def test_a_client_with_an_outdated_map_goes_where_it_is_sent(server):
    """All it knows is a node that has nothing any more. The server's own answer names the server, and is newer."""

    def outdated(config):
        return owned(config, -1, [node.port], lambda _: 0)

    with FakeNode(server, outdated) as node, cluster_of(node) as cluster:
        collection = cluster.bucket("default").default_collection()
        collection.upsert(KEYS[0], {"turn": 0})
        assert_sent_away_once(node, KEYS[0], collection)
    assert_written(server)


def test_of_two_nodes_each_is_asked_for_its_own(server):
    """The other node has every second vbucket, and gives them up when it is asked for one."""

    def halves(config):
        return owned(config, 1, [node.port, server.ports["couchbase"]], lambda vbucket: vbucket % 2)

    def given_up(config):
        return owned(config, 2, [server.ports["couchbase"]], lambda _: 0)

    with FakeNode(server, halves, given_up) as node, cluster_of(node) as cluster:
        collection = cluster.bucket("default").default_collection()
        here = [key for key in KEYS if vbucket_of(key) % 2 == 1]
        there = [key for key in KEYS if vbucket_of(key) % 2 == 0]
        assert here and there
        for key in here:
            collection.upsert(key, {"turn": 0})
        assert node.sent_away == [], "the server's own vbuckets are its own"
        collection.upsert(there[0], {"turn": 0})
        assert_sent_away_once(node, there[0], collection)
    assert_written(server)
