"""A node of a cluster that there is not: it stands before a server, passes frames on, and changes what it is told to."""

import json
import socket
import struct
import threading
import zlib

# Magics. Of frames with short framing extras the high byte of the key's length is that of the extras.
ALT_RESPONSE = 0x18
GET, SET, HELLO, GET_CLUSTER_CONFIG = 0x00, 0x01, 0x1F, 0xB5
# Features with which the server sends configurations by itself, or none to clients that it has told before: what clients
# are told here is not what it told.
HIDDEN_FEATURES = 0x0D, 0x1E, 0x1F
NO_FEATURE = 0x7FFF
NOT_MY_VBUCKET = 0x07
HEADER_BYTES = 24
VBUCKETS = 1024


def vbucket_of(key):
    """As clients compute it."""
    return (zlib.crc32(key.encode()) >> 16) % VBUCKETS


class FakeNode:
    """Whose clients are told `told(config)` for the server's configuration, and for reads and writes of whole documents
    that another node has them, as the server says it (with the right configuration, changed by `corrected`)."""

    def __init__(self, server, told, corrected=lambda config: config):
        self.server, self.told, self.corrected = server, told, corrected
        # The vbuckets of requests that were sent away.
        self.sent_away = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        # Where the tests look for the ports of a server.
        self.ports = {"couchbase": self.port}
        threading.Thread(target=self.accept, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        # A listener that is only closed does not wake who waits for it.
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self.server.ports["couchbase"]))
            for source, target, change in (client, server, self.request), (server, client, self.response):
                threading.Thread(target=pass_on, args=(source, target, change), daemon=True).start()

    def request(self, header, body):
        opcode, (vbucket,) = header[1], struct.unpack_from(">H", header, 6)
        if opcode in (GET, SET):
            self.sent_away.append(vbucket)
            # No node has one beyond the last: the server itself answers that it is not its own.
            struct.pack_into(">H", header, 6, vbucket + VBUCKETS)
        if opcode == HELLO:
            (agent_bytes,) = struct.unpack_from(">H", header, 2)
            for at in range(agent_bytes, len(body), 2):
                if struct.unpack_from(">H", body, at)[0] in HIDDEN_FEATURES:
                    struct.pack_into(">H", body, at, NO_FEATURE)
        return header + body

    def response(self, header, body):
        opcode, (status,) = header[1], struct.unpack_from(">H", header, 6)
        if status == NOT_MY_VBUCKET:
            return changed(header, body, self.corrected)
        if opcode == GET_CLUSTER_CONFIG and status == 0:
            return changed(header, body, self.told)
        return header + body


def changed(header, body, change):
    """The frame with `change` applied to its value, which is a configuration; as it is, if it has none."""
    framing_bytes, key_bytes = (header[2], header[3]) if header[0] == ALT_RESPONSE else (0, header[2] << 8 | header[3])
    before = framing_bytes + header[4] + key_bytes
    if len(body) > before:
        body = body[:before] + json.dumps(change(json.loads(body[before:]))).encode()
        struct.pack_into(">I", header, 8, len(body))
    return header + body


def pass_on(source, target, change):
    """Passes frames on until either side ends, and then ends both."""
    try:
        while header := read(source, HEADER_BYTES):
            (body_bytes,) = struct.unpack_from(">I", header, 8)
            target.sendall(change(header, read(source, body_bytes)))
    except OSError:
        pass
    for end in source, target:
        try:
            end.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass


def read(source, count):
    """Exactly so many bytes; none where the stream ends."""
    data = bytearray()
    while len(data) < count:
        if not (part := source.recv(count - len(data))):
            return bytearray()
        data += part
    return data
