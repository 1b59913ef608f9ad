"""How the tests use the Couchbase Python SDK, unmodified, against the Couchbase door."""

import contextlib
from datetime import timedelta

import pytest
from couchbase.auth import PasswordAuthenticator
from couchbase.cluster import Cluster
from couchbase.options import ClusterOptions, ClusterTimeoutOptions

# Of an operation that the SDK tries again until its time is over.
SHORT = timedelta(seconds=1)


def connect(server, user="somebody", password="anything", **options):
    """A cluster. Without users in the configuration any name comes in."""
    timeouts = ClusterTimeoutOptions(kv_timeout=timedelta(seconds=60), connect_timeout=timedelta(seconds=60))
    return Cluster(
        f"couchbase://127.0.0.1:{server.ports['couchbase']}",
        ClusterOptions(PasswordAuthenticator(user, password), timeout_options=timeouts, **options),
    )


@contextlib.contextmanager
def cluster_of(server, *arguments, **options):
    cluster = connect(server, *arguments, **options)
    try:
        yield cluster
    finally:
        cluster.close()


@pytest.fixture(scope="module")
def module_server(tmp_path_factory):
    """A server for all tests of a module: each uses keys of its own."""
    from conftest import Server

    started = Server(tmp_path_factory.mktemp("couchbase") / "data")
    yield started
    status = started.stop()
    assert status == 0, started.log_text()


@pytest.fixture(scope="module")
def cluster(module_server):
    with cluster_of(module_server) as connected:
        yield connected


@pytest.fixture(scope="module")
def collection(cluster):
    return cluster.bucket("default").default_collection()


@pytest.fixture
def key(request):
    """A key that no other test uses."""
    return request.node.name
