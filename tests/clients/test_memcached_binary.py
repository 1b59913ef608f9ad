"""The binary protocol: python-binary-memcached, unmodified, and the same frames to Oribi and to memcached 1.6.18.

`SCRIPT` is always run: memcached's answers to it are recorded in `memcached_binary_answers.txt`. Where memcached 1.6.18
is installed, both servers also get random frames, and `python test_memcached_binary.py` records the answers anew. What
differs on purpose (docs/protocols/memcached.md) is not asked, or made equal by `shown`.
"""

import pathlib
import random
import socket
import struct

import bmemcached
import pytest
from test_memcached_differential import Connection, running_memcached

RECORDED = pathlib.Path(__file__).with_name("memcached_binary_answers.txt")

GET, SET, ADD, REPLACE, DELETE, INCR, DECR, QUIT, FLUSH, GETQ, NOOP, VERSION, GETK, GETKQ, APPEND, PREPEND = range(16)
STAT, SETQ, ADDQ, REPLACEQ, DELETEQ, INCRQ, DECRQ, QUITQ, FLUSHQ, APPENDQ, PREPENDQ, VERBOSITY, TOUCH, GAT, GATQ = range(16, 31)
SASL_LIST, SASL_AUTH, SASL_STEP, GATK, GATKQ = range(0x20, 0x25)


def frame(opcode, key="", value="", extras=b"", cas=0, opaque=0, **lengths):
    """A request; `lengths` says wrong ones. A cas may be "current" or "old": of the document as it is."""
    key, value = key.encode(), value if isinstance(value, bytes) else value.encode()
    return (opcode, key, value, extras, cas, opaque, lengths)


def store(opcode, key, value, flags=0, exptime=0, **more):
    return frame(opcode, key, value, struct.pack(">II", flags, exptime), **more)


def count(opcode, key, delta, initial, exptime=0, **more):
    return frame(opcode, key, extras=struct.pack(">QQI", delta, initial, exptime), **more)


def touch(opcode, key, exptime, **more):
    return frame(opcode, key, extras=struct.pack(">I", exptime), **more)


MAKE_NOT = 0xFFFFFFFF
LONG = "k" * 251
EDGE = "k" * 250

# Each entry is sent at once.
SCRIPT = [
    [store(SET, "a", "abc", 7), frame(GET, "a"), frame(GETK, "a"), frame(GET, "z"), frame(GETK, "z")],
    [frame(GETQ, "z"), frame(GETKQ, "z"), frame(GETQ, "a"), frame(GETKQ, "a", opaque=0xDEADBEEF)],
    [store(ADD, "a", "x"), store(REPLACE, "z", "x"), store(ADD, "b", "x", 1, 100), store(REPLACE, "b", "yy", 2, 0)],
    [store(SETQ, "c", "1"), store(ADDQ, "c", "2"), store(REPLACEQ, "z", "3"), store(ADDQ, "d", "4"), store(REPLACEQ, "d", "5")],
    [frame(GETQ, "a"), frame(GETQ, "b"), frame(GETQ, "c"), frame(GETQ, "d"), frame(GETQ, "z")],
    [store(SET, "a", "x", cas=1), store(SET, "z", "x", cas=1), store(ADD, "z", "x", cas=1), store(ADD, "a", "x", cas=1)],
    [store(REPLACE, "z", "x", cas=1), store(REPLACE, "a", "x", cas=1), store(SETQ, "a", "x", cas=1)],
    [store(SET, "a", "new", 3, cas="current")],
    [store(SET, "a", "newer", 3, cas="old")],
    [store(REPLACE, "a", "newest", 3, cas="current"), frame(GET, "a")],
    [frame(APPEND, "a", "+", cas="current"), frame(GET, "a")],
    [frame(APPEND, "a", "+", cas="old"), frame(PREPEND, "a", "-"), frame(APPENDQ, "a", "!"), frame(PREPENDQ, "a", "?"), frame(GET, "a")],
    [frame(APPEND, "z", "+"), frame(PREPEND, "z", "+"), frame(APPENDQ, "z", "+"), frame(APPEND, "z", "+", cas=1), frame(APPEND, "a")],
    [frame(DELETE, "a", cas="old")],
    [frame(DELETE, "a", cas="current"), frame(DELETE, "a"), frame(DELETE, "z", cas=1)],
    [frame(DELETEQ, "b"), frame(DELETEQ, "b"), frame(GET, "b")],
    [count(INCR, "n", 1, 10), count(INCR, "n", 5, 0), count(DECR, "n", 100, 0), count(INCR, "m", 1, 1, MAKE_NOT)],
    [count(INCRQ, "m", 1, 1, MAKE_NOT), count(DECRQ, "m", 1, 7, 100), count(DECRQ, "m", 1, 7), frame(GET, "m"), "m"],
    [store(SET, "n", "18446744073709551615"), count(INCR, "n", 2, 0), frame(GET, "n")],
    [store(SET, "n", "x"), count(INCR, "n", 1, 0), count(INCRQ, "n", 1, 0), count(DECR, "n", 1, 0, cas=1)],
    [store(SET, "n", "5", 3, 100), count(INCR, "n", 1, 0, 500, cas="current"), frame(GET, "n"), "n"],
    [store(SET, "n", "5"), count(INCR, "n", 1, 0, cas="old"), count(INCR, "y", 1, 9, cas=1), frame(GET, "y")],
    [store(SET, "t", "x", 9, 100), "t", touch(TOUCH, "t", 500), "t", touch(GAT, "t", 0), "t", touch(GATK, "t", 700), "t"],
    [touch(TOUCH, "z", 1), touch(GAT, "z", 1), touch(GATQ, "z", 1), touch(GATK, "z", 1), touch(GATKQ, "z", 1)],
    [touch(GATQ, "t", 100), touch(GATKQ, "t", 200), "t", touch(TOUCH, "t", 2592001), frame(GET, "t")],
    [store(SET, "e", "x", 0, 2592000), "e", store(SET, "e", "x", 0, 2592001), frame(GET, "e"), store(SET, "e", "x", 0, 0x7FFFFFFF), frame(GET, "e")],
    [store(SET, EDGE, "x"), frame(GET, EDGE), store(SET, "with space", "x"), frame(GETK, "with space"), store(SET, "k", b"\x80\x00\r\n"), frame(GET, "k")],
    [store(SET, "a", ""), frame(GET, "a"), store(SET, "a", "v" * 100_000), frame(GET, "a")],
    [store(SET, "a", "x"), frame(VERSION), frame(NOOP, opaque=7), frame(STAT, "unknown"), frame(STAT, "reset")],
    [frame(FLUSH), frame(GET, "a"), store(SET, "a", "x"), frame(FLUSHQ), frame(GET, "a")],
    [store(SET, "a", "x"), touch(FLUSH, "", 1000), frame(GET, "a"), touch(FLUSHQ, "", 0), frame(GET, "a")],
    [frame(SASL_LIST)],
    [frame(SASL_AUTH, "PLAIN", "\0user\0password"), frame(NOOP)],
    [frame(SASL_STEP, "PLAIN", "x"), frame(NOOP)],
    [frame(0x77), frame(NOOP)],
    [frame(0x77, value="body"), frame(NOOP)],
    [store(SET, "l", "x" * 2_000_000), frame(NOOP)],
    [store(SETQ, "l", "x" * 2_000_000), frame(NOOP)],
    [frame(APPEND, "l", "x" * 2_000_000), frame(NOOP)],
    # memcached closes after each of these.
    [frame(GET, LONG)],
    [store(SETQ, LONG, "x")],
    [frame(GETQ, LONG)],
    [frame(GET)],
    [frame(GET, "a", "x")],
    [frame(GET, "a", extras=b"1234")],
    [store(SET, "", "x")],
    [frame(SET, "a", "x")],
    [frame(SET, "a", "x", extras=b"1234567")],
    [frame(APPEND, "a", "x", extras=b"1")],
    [frame(DELETE, "a", "x")],
    [frame(INCR, "a", extras=b"12345678")],
    [frame(TOUCH, "a")],
    [frame(GATQ, "a")],
    [frame(FLUSH, "", extras=b"12345")],
    [frame(NOOP, value="x")],
    [frame(VERSION, "a")],
    [frame(QUIT, "a")],
    [frame(GET, "abc", keylen=10)],
    [frame(QUIT)],
    [frame(QUITQ)],
]


class BinaryConnection:
    """A connection to one of the servers, made anew when it was closed; and one that asks for times to live."""

    def __init__(self, port):
        self.port, self.text = port, Connection(port)
        self.connect()

    def connect(self):
        self.socket = socket.create_connection(("127.0.0.1", self.port), timeout=30)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self, data):
        """The answers to frames, up to one to a NOOP that is sent behind them, or the end of the connection."""
        end = encoded(frame(NOOP, opaque=0x0E0D0E0D))
        try:
            self.socket.sendall(data + end)
        except ConnectionError:
            pass
        answers, rest = [], b""
        while True:
            while len(rest) >= 24 and len(rest) >= (length := 24 + int.from_bytes(rest[8:12], "big")):
                answer, rest = rest[:length], rest[length:]
                if answer[1] == NOOP and answer[12:16] == end[12:16]:
                    assert not rest
                    return answers
                answers.append(answer)
            try:
                received = self.socket.recv(1 << 20)
            except ConnectionError:
                received = b""
            if not received:
                assert not rest
                self.connect()
                return answers
            rest += received

    def run(self, entry):
        """The answers to an entry, as they are compared; a name alone asks for a time to live."""
        asked, shown_answers = b"", []
        for item in [*entry, None]:
            if isinstance(item, tuple):
                asked += encoded(item, self.cas(item))
                continue
            shown_answers += [shown(answer) for answer in self.ask(asked)] if asked else []
            asked = b""
            if item is not None:
                shown_answers.append(self.text.run(f"mg {item} t\r\n"))
        return shown_answers

    def cas(self, item):
        """The cas that a frame asks for by name: of the document as this server has it."""
        opcode, key, _, _, cas, _, _ = item
        if not isinstance(cas, str):
            return cas
        answers = self.ask(encoded(frame(GETQ, key.decode())))
        value = int.from_bytes(answers[0][16:24], "big") if answers else 3
        return value - (cas == "old")


def encoded(item, cas=0):
    opcode, key, value, extras, _, opaque, lengths = item
    body = extras + key + value
    key_length = lengths.get("keylen", len(key))
    return struct.pack(">BBHBBHIIQ", 0x80, opcode, key_length, len(extras), 0, 0, len(body), opaque, cas) + body


def shown(answer):
    """An answer without what may differ: cas values, versions, a counter's padding."""
    magic, opcode, key_length, extras_length, datatype, status, _, opaque, cas = struct.unpack(">BBHBBHIIQ", answer[:24])
    extras, key = answer[24:][:extras_length], answer[24 + extras_length :][:key_length]
    value = answer[24 + extras_length + key_length :]
    assert (magic, datatype) == (0x81, 0)
    if opcode == VERSION and status == 0:
        value = b"<version>"
    if opcode not in (INCR, DECR) and value.strip(b" ").isdigit():
        value = value.rstrip(b" ")
    value = value if len(value) < 100 else b"%d bytes" % len(value)
    cas = "cas" if cas else ""
    return f"{opcode:#04x} status {status:#x} opaque {opaque:#x} extras {extras.hex()} key {key.decode()!r} value {value!r} {cas}".rstrip()


def answers(port):
    connection = BinaryConnection(port)
    connection.text.ask(b"set warm 0 0 1\r\nx\r\n" * 10)
    text = []
    for entry in SCRIPT:
        request = ", ".join(item if isinstance(item, str) else f"{item[0]:#04x} {item[1][:10].decode()}".strip() for item in entry)
        text.append("\n".join([f"> {request}", *connection.run(entry)]) + "\n")
    return "".join(text)


def test_the_script_is_answered_as_memcached_answers_it(server):
    got, recorded = answers(server.ports["memcached"]), RECORDED.read_text()
    assert got.split("> ") == recorded.split("> ")


@pytest.mark.parametrize("seed", range(10))
def test_random_frames_are_answered_as_memcached_answers_them(server, seed):
    chance = random.Random(seed)
    with running_memcached() as theirs_port:
        ours, theirs = BinaryConnection(server.ports["memcached"]), BinaryConnection(theirs_port)
        for connection in (ours, theirs):
            connection.text.ask(b"set warm 0 0 1\r\nx\r\n" * 10)
        history = []
        for _ in range(1000):
            frames = [random_frame(chance) for _ in range(chance.choice([1, 1, 2, 5, 20]))]
            # A cas is asked for before, so nothing may come between.
            compares = [item for item in frames if isinstance(item[4], str)]
            entry = [compares[0], frame(GETK, compares[0][1].decode())] if compares else frames
            history = [*history[-8:], entry]
            assert ours.run(entry) == theirs.run(entry), f"seed {seed}, after {history}"


def random_frame(chance):
    """A random request, mostly well-formed."""
    pick = chance.choice
    key, counter, opaque = pick("abcd"), pick("no"), chance.randrange(1 << 32)
    value = pick(["", "x", "hello", "12", "99", "v" * 3000, "\r\nx", "7up"])
    exptime = pick([0, 0, 100, 2592000, 2592001])
    flags = pick([0, 1, 0xFFFFFFFF])
    cas = pick([0, 0, 0, "current", "current", "old"])
    match pick("store store get get get touch append delete count count flush other".split()):
        case "store":
            return store(pick([SET, ADD, REPLACE, SETQ, ADDQ, REPLACEQ]), key, value, flags, exptime, cas=cas, opaque=opaque)
        case "get":
            return frame(pick([GET, GETQ, GETK, GETKQ]), pick("abcdzno"), opaque=opaque)
        case "touch":
            return touch(pick([TOUCH, GAT, GATQ, GATK, GATKQ]), pick("abcdz"), exptime, opaque=opaque)
        case "append":
            return frame(pick([APPEND, PREPEND, APPENDQ, PREPENDQ]), key, value[:100], cas=cas, opaque=opaque)
        case "delete":
            return frame(pick([DELETE, DELETEQ]), pick(key + counter), cas=cas, opaque=opaque)
        case "count":
            delta, initial = pick([0, 1, 99, (1 << 64) - 1]), pick([0, 5, 1 << 63])
            return count(pick([INCR, DECR, INCRQ, DECRQ]), counter, delta, initial, pick([0, 100, MAKE_NOT]), cas=cas, opaque=opaque)
        case "flush":
            return pick([frame(FLUSH), frame(FLUSHQ), *[frame(NOOP, opaque=opaque)] * 10])
        case "other":
            return pick([frame(NOOP, opaque=opaque), frame(VERSION), frame(0x77, opaque=opaque), frame(SASL_LIST)])


def test_every_operation_of_the_client(server):
    cache = bmemcached.Client((f"127.0.0.1:{server.ports['memcached']}",))
    assert cache.set("k", "one", time=100)
    assert cache.get("k") == "one"
    assert cache.get("absent") is None and cache.get("absent", default=5) == 5
    assert not cache.add("k", "two") and cache.add("added", b"a")
    assert cache.replace("k", "two") and not cache.replace("absent", "x")
    value, cas = cache.gets("k")
    assert value == "two"
    assert cache.cas("k", "three", cas) and not cache.cas("k", "four", cas)
    assert cache.get("k") == "three"
    assert cache.set_multi({"a": 1, "b": [2, "x"], "c": b"3"}) == []
    assert cache.get_multi(["a", "b", "z", "c"]) == {"a": 1, "b": [2, "x"], "c": b"3"}
    found = cache.get_multi(["a", "z"], get_cas=True)
    assert found["a"][0] == 1 and found["a"][1] > 0 and set(found) == {"a"}
    # The client stores counters that it makes as numbers of its own, but others as they are.
    assert cache.incr("n", 5, default=40) == 40 and cache.incr("n", 2) == 42 and cache.decr("n", 50) == 0
    assert cache.delete("a") and cache.get("a") is None
    assert cache.delete("b", cas=1) is False
    assert cache.delete_multi(["b", "c"])
    assert cache.set("long", "x" * 500_000, compress_level=0) and cache.get("long") == "x" * 500_000
    statistics = cache.stats()
    assert all(int(values["cmd_set"]) > 0 for values in statistics.values()) and statistics
    assert cache.flush_all()
    assert cache.get("k") is None
    cache.disconnect_all()


def test_a_client_with_a_password_learns_that_none_is_asked_for(server):
    cache = bmemcached.Client((f"127.0.0.1:{server.ports['memcached']}",), "user", "password")
    assert cache.set("k", "v") and cache.get("k") == "v"


def test_verbosity_is_answered_and_keys_too_long_cost_no_connection(server):
    connection = BinaryConnection(server.ports["memcached"])
    before = connection.socket
    assert [a[1:8] for a in connection.ask(encoded(touch(VERBOSITY, "", 1)))] == [bytes([VERBOSITY, 0, 0, 0, 0, 0, 0])]
    for bad in (frame(GET, LONG), frame(0x77, "key", "value", b"extras"), frame(NOOP, value="x"), store(SET, "", "x")):
        assert len(connection.ask(encoded(bad))) == 1
    assert connection.socket is before


def test_all_codecs_see_the_same_documents(server):
    binary = bmemcached.Client((f"127.0.0.1:{server.ports['memcached']}",))
    text = server.memcached()
    with server.sql() as sql:
        sql.execute("create table orders (id bigint primary key, total numeric(12,2))")
        sql.execute("insert into orders values (1, 2.5)")
        assert binary.get("public/orders/1") == b'{"id":1,"total":2.50}' or binary.get("public/orders/1") == '{"id":1,"total":2.50}'
        connection = BinaryConnection(server.ports["memcached"])
        (refused,) = connection.ask(encoded(store(SET, "public/orders/2", '{"total":"many"}')))
        assert refused[6:8] == b"\0\x04" and b'column "total"' in refused
    assert binary.set("k", "v")
    assert text.get("k") == b"v"
    text.set("k", b"w", noreply=False)
    assert binary.get("k") in ("w", b"w")


if __name__ == "__main__":
    with running_memcached() as recording:
        RECORDED.write_text(answers(recording))
