"""As much of Kudu's protocol in raw bytes as a client needs that is up to no good."""

import re
import socket
import struct


def varint(number):
    number &= (1 << 64) - 1
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def field(number, value):
    """A field of a message: a number, or bytes."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def frame(header, body):
    payload = varint(len(header)) + header + varint(len(body)) + body
    return struct.pack(">I", len(payload)) + payload


def call(call_id, service, method, body):
    remote = field(1, f"kudu.{service}".encode()) + field(2, method.encode())
    return frame(field(3, call_id) + field(6, remote), body)


def receive(client):
    """The next frame, without its length."""
    data = b""
    while len(data) < 4 or len(data) < 4 + struct.unpack(">I", data[:4])[0]:
        received = client.recv(1 << 20)
        assert received, "the server has hung up"
        data += received
    return data[4:]


def connect(server):
    """A connection to the tablet server's port that has negotiated."""
    client = socket.create_connection(("127.0.0.1", server.ports["kudu-tserver"]), timeout=60)
    negotiate = field(2, 1) + field(7, field(1, b""))
    initiate = field(2, 2) + field(3, b"\0ada\0") + field(4, field(2, b"PLAIN"))
    client.sendall(b"hrpc\x09\0\0" + frame(field(3, -33), negotiate))
    receive(client)
    client.sendall(frame(field(3, -33), initiate))
    receive(client)
    client.sendall(frame(field(3, -3), field(2, field(2, b"ada"))))
    return client


def locations(table, call_id=1):
    """Asks where all tablets of a table are."""
    request = field(1, field(2, table.encode())) + field(5, 1000)
    return call(call_id, "master.MasterService", "GetTableLocations", request)


def tablet(client, table):
    """The id of a table's first tablet."""
    client.sendall(locations(table))
    return re.search(rb"\x0a\x20([0-9a-f]{32})", receive(client)).group(1)


def scan(tablet_id, call_id=1):
    """Asks for about a mebibyte of the rows of a table (k bigint primary key, v text)."""
    key = field(2, b"k") + field(3, 7)
    value = field(2, b"v") + field(3, 8) + field(5, 1)
    return call(
        call_id,
        "tserver.TabletServerService",
        "Scan",
        field(2, field(1, tablet_id) + field(4, key) + field(4, value)) + field(4, 1 << 20),
    )
