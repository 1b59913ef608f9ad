"""Clients of the memcached port and of Kudu's that send garbage, halves or too much: they cost bounded memory, and nobody
else's answers."""

import contextlib
import pathlib
import random
import socket
import struct
import time

import kudu_frames as kudu
import pytest

MIB = 1 << 20
VALUE = b"v" * 100_000


def resident_bytes(server):
    status = pathlib.Path(f"/proc/{server.process.pid}/status").read_text()
    return 1024 * int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1])


def connect(server):
    return socket.create_connection(("127.0.0.1", server.ports["memcached"]), timeout=60)


def send_all_that_is_taken(client, data):
    """Sends until the server has taken nothing for a while; returns how many bytes it took."""
    client.setblocking(False)
    sent, quiet = 0, 0
    while sent < len(data) and quiet < 20:
        try:
            sent += client.send(data[sent : sent + 65536])
            quiet = 0
        except BlockingIOError:
            quiet += 1
            time.sleep(0.01)
        except ConnectionError:
            break
    return sent


def binary_set(body):
    return struct.pack(">BBHBBHIIQ", 0x80, 1, 1, 8, 0, 0, body, 0, 0) + bytes(8) + b"k"


def garbage(server, i):
    chance = random.Random(i)
    first = chance.choice([b"", b"\x80", b"\x80\x01", b"\x08", b"set ", b"mg ", b"get "])
    client = connect(server)
    send_all_that_is_taken(client, first + chance.randbytes(200_000))
    return client


def half_a_request(server, i):
    client = connect(server)
    halves = [b"set k 0 0 1000000\r\n", b"ms k 1000000\r\n", binary_set(1_000_009), b"get " + b"key " * 1000, b"set k 0 0"]
    client.sendall(halves[i % len(halves)] + (b"x" * 1000 if i % 5 < 3 else b""))
    return client


def half_a_long_request(server, i):
    client = connect(server)
    client.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        client.send(b"set k 0 0 1000000\r\n" + bytes(100_000))
    return client


def a_request_said_to_be_huge(server, i):
    client = connect(server)
    client.sendall([b"set k 0 0 2000000000\r\n", b"ms k 2000000000\r\n", binary_set(0xFFFFFFFF)][i % 3])
    for _ in range(20):
        send_all_that_is_taken(client, b"x" * 100_000)
    return client


def requests_without_reading_the_answers(server, i):
    requests = [b"get big\r\n", b"mg big v\r\n", struct.pack(">BBHBBHIIQ", 0x80, 0, 3, 0, 0, 0, 3, 0, 0) + b"big"]
    client = connect(server)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
    send_all_that_is_taken(client, requests[i % 3] * 10_000)
    return client


def one_get_of_many_keys_without_reading_the_answers(server, i):
    client = connect(server)
    send_all_that_is_taken(client, b"get" + b" big" * 10_000 + b"\r\n")
    return client


def half_a_long_kudu_frame(server, i):
    client = kudu.connect(server)
    # Half of the kind that is a call, half of nothing.
    begun = struct.pack(">I", 50 << 20) + bytes([i % 2 and 0xFF])
    send_all_that_is_taken(client, begun + bytes(8 * MIB))
    return client


def make_kudu_tables(server):
    """Once for a server."""
    if vars(server).setdefault("kudu_tables", False):
        return
    server.kudu_tables = True
    with server.sql() as sql:
        hash = "partition by hash (a) partitions 16, hash (b) partitions 16"
        sql.execute(f"create table wide (a bigint, b bigint, primary key (a, b)) {hash}")
        sql.execute("create table long (k bigint primary key, v text)")
        sql.execute("insert into long select value, repeat('v', 1000) from generate_series(1, 3000) as g(value)")


def kudu_look_ups_without_reading_the_answers(server, i):
    make_kudu_tables(server)
    client = kudu.connect(server)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
    # Of 100 bytes each, and of 30 kB the answers.
    send_all_that_is_taken(client, b"".join(kudu.locations("wide", n) for n in range(5000)))
    return client


def kudu_scans_without_reading_the_answers(server, i):
    make_kudu_tables(server)
    client = kudu.connect(server)
    tablet = kudu.tablet(client, "long")
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
    send_all_that_is_taken(client, b"".join(kudu.scan(tablet, n) for n in range(1000)))
    return client


@pytest.mark.parametrize(
    "abuse, clients, growth_max",
    [
        # All of them together have 256 MiB.
        (half_a_long_kudu_frame, 60, 300 * MIB),
        # All of them together have 256 MiB.
        (kudu_look_ups_without_reading_the_answers, 40, 350 * MIB),
        # Each could have 256 of them at a time, of 1 MiB, and has 16, which lie in buffers of twice that size.
        (kudu_scans_without_reading_the_answers, 10, 400 * MIB),
        (garbage, 100, 32 * MIB),
        # 1 MB is declared each time, and 1 kB sent.
        (half_a_request, 300, 32 * MIB),
        # All of them together have 128 MiB, and those who wait for some of that 48 KiB each.
        (half_a_long_request, 1000, 230 * MIB),
        (a_request_said_to_be_huge, 30, 32 * MIB),
        # The answers would be 1 GB each time.
        (requests_without_reading_the_answers, 40, 80 * MIB),
        (one_get_of_many_keys_without_reading_the_answers, 40, 80 * MIB),
    ],
)
def test_memory_stays_bounded_and_others_are_served(server, abuse, clients, growth_max):
    cache = server.memcached()
    assert cache.set("big", VALUE, noreply=False) and cache.set("small", b"s", noreply=False)
    # What the server allocates once, for anybody.
    for i in range(10):
        abuse(server, i).close()
    before = resident_bytes(server)
    held = []
    for i in range(clients):
        held.append(abuse(server, i))
        if i % 10 == 0:
            assert cache.get("small") == b"s"
    # Whichever thread serves it.
    assert all(server.memcached().get("small") == b"s" for _ in range(20))
    assert resident_bytes(server) - before < growth_max
    for client in held:
        client.close()
    assert cache.get("big") == VALUE


def test_requests_that_come_byte_by_byte_do_not_hold_up_others(server):
    cache = server.memcached()
    cache.set("small", b"s", noreply=False)
    request = b"set slow 0 0 5\r\nhello\r\nget slow\r\n"
    slow = [connect(server) for _ in range(50)]
    for byte in request:
        for client in slow:
            client.sendall(bytes([byte]))
        assert cache.get("small") == b"s"
    for client in slow:
        answer = b""
        while not answer.endswith(b"END\r\n"):
            answer += client.recv(1000)
        assert answer == b"STORED\r\nVALUE slow 0 5\r\nhello\r\nEND\r\n"


def test_what_was_not_read_is_answered_once_it_is(server):
    cache = server.memcached()
    cache.set("big", VALUE, noreply=False)
    client = connect(server)
    requests = b"get big\r\n" * 300
    assert send_all_that_is_taken(client, requests) == len(requests)
    client.setblocking(True)
    client.settimeout(60)
    answer = b"VALUE big 0 100000\r\n" + VALUE + b"\r\nEND\r\n"
    received = b""
    while len(received) < 300 * len(answer):
        received += client.recv(MIB)
    assert received == answer * 300
