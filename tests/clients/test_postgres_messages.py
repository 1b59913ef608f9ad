"""Messages of PostgreSQL's protocol, well-formed and not, in every state of a connection: answered as PostgreSQL 15 does.

Each case brings a connection into a state, sends one message, reads what is answered at once, and then sends what leads
out of every state. PostgreSQL's answers are recorded in `postgres_answers.txt`, at once and later apart;
`python test_postgres_messages.py PORT` records them anew from a server on this machine. What differs on purpose
(docs/protocols/postgres.md) is made equal by `normalized`.
"""

import pathlib
import re
import socket
import struct
import sys

import pytest

RECORDED = pathlib.Path(__file__).with_name("postgres_answers.txt")
TIMEOUT_S = 60


def message(kind, body=b"", length=None):
    return kind + struct.pack(">i", 4 + len(body) if length is None else length) + body


def query(sql):
    return message(b"Q", sql + b"\0")


def parse(sql, types=b"\0\0"):
    return message(b"P", b"\0" + sql + b"\0" + types)


def bind(body=b"\0\0\0\0\0\0"):
    return message(b"B", b"\0\0" + body)


def execute(rows=0):
    return message(b"E", b"\0" + struct.pack(">i", rows))


SYNC, FLUSH, COPY_DONE = message(b"S"), message(b"H"), message(b"c")
ROWS = b"select id from t order by id"

STATES = {
    "idle": [],
    "a pipeline": [parse(ROWS), bind(), FLUSH],
    "skipping": [parse(b"selec"), FLUSH],
    "a suspended portal": [query(b"begin"), parse(ROWS), bind(), execute(1), FLUSH],
    "a block": [query(b"begin")],
    "a failed block": [query(b"begin"), query(b"selec")],
    "a copy": [query(b"copy c from stdin")],
    "a copy of the extended protocol": [parse(b"copy c from stdin"), bind(), execute(), FLUSH],
    "a copy in a block": [query(b"begin"), query(b"copy c from stdin")],
}

MESSAGES = {
    "query": query(b"select 1"),
    "query: empty": query(b""),
    "query: fails": query(b"selec"),
    "query: without an end": message(b"Q", b"select 1"),
    "query: nothing": message(b"Q"),
    "query: and more": message(b"Q", b"select 1\0x"),
    "query: no UTF-8": query(b"select '\xff'"),
    "query: rollback": query(b"rollback"),
    "parse": parse(b"select 1"),
    "parse: empty": parse(b""),
    "parse: fails": parse(b"selec"),
    "parse: two": parse(b"select 1; select 2"),
    "parse: rollback": parse(b"rollback"),
    "parse: nothing": message(b"P"),
    "parse: cut": message(b"P", b"\0select 1\0"),
    "parse: without its types": parse(b"select 1", b"\xff\xff"),
    "parse: and more": parse(b"select 1", b"\0\0x"),
    "bind": bind(),
    "bind: nothing": message(b"B"),
    "bind: cut": bind(b"\0\0\0\0"),
    "bind: and more": bind(b"\0\0\0\0\0\0x"),
    "bind: a parameter too many": bind(b"\0\0\0\1\0\0\0\0\0\0"),
    "bind: a negative length": bind(b"\0\0\0\1\xff\xff\xff\xf0\0\0"),
    "bind: two formats for one column": bind(b"\0\0\0\0\0\2\0\0\0\0"),
    "bind: no such statement": message(b"B", b"\0nope\0\0\0\0\0\0\0"),
    "describe a statement": message(b"D", b"S\0"),
    "describe a portal": message(b"D", b"P\0"),
    "describe: no such statement": message(b"D", b"Snope\0"),
    "describe: something else": message(b"D", b"X\0"),
    "describe: nothing": message(b"D"),
    "describe: cut": message(b"D", b"Snope"),
    "describe: and more": message(b"D", b"S\0x"),
    "execute": execute(),
    "execute: one row": execute(1),
    "execute: less than none": execute(-1),
    "execute: no such portal": message(b"E", b"nope\0\0\0\0\0"),
    "execute: nothing": message(b"E"),
    "execute: cut": message(b"E", b"\0\0\0"),
    "execute: and more": message(b"E", b"\0\0\0\0\0x"),
    "close a statement": message(b"C", b"S\0"),
    "close a portal": message(b"C", b"P\0"),
    "close: no such portal": message(b"C", b"Pnope\0"),
    "close: something else": message(b"C", b"X\0"),
    "close: nothing": message(b"C"),
    "close: and more": message(b"C", b"S\0x"),
    "flush": FLUSH,
    "flush: and more": message(b"H", b"x"),
    "sync": SYNC,
    "sync: and more": message(b"S", b"x"),
    "copy data": message(b"d", b"7\n"),
    "copy data: no number": message(b"d", b"seven\n"),
    "copy data: nothing": message(b"d"),
    "copy done": COPY_DONE,
    "copy done: and more": message(b"c", b"x"),
    "copy fails": message(b"f", b"no more\0"),
    "copy fails: without an end": message(b"f", b"no more"),
    "copy fails: nothing": message(b"f"),
    "copy fails: and more": message(b"f", b"no more\0x"),
    "call a function": message(b"F", struct.pack(">ihhh", 1, 0, 0, 0)),
    "terminate": message(b"X"),
    "terminate: and more": message(b"X", b"x"),
    "a password": message(b"p", b"secret\0"),
    "no message": message(b"y"),
    "zeros": bytes(16),
    **{f"{kind}, shorter than its length": message(kind.encode(), length=3) for kind in "QPBDECHSXdcfF"},
    **{f"{kind}, of a negative length": message(kind.encode(), length=-1) for kind in "QPBDECHSXdcfF"},
    **{f"{kind}, of 2 GiB": message(kind.encode(), length=2**31 - 1) for kind in "QPBDECHSXdcfF"},
    **{f"{kind}, of 10,001 bytes": message(kind.encode(), length=10_001) for kind in "DECHSXcf"},
}

# Out of every state.
AFTER = [SYNC, COPY_DONE, SYNC, query(b"rollback"), query(b"select 1"), message(b"X")]

CASES = [(state, name) for state in STATES for name in MESSAGES]


class Connection:
    def __init__(self, port, user):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S)
        self.received = b""
        settings = b"user\0%s\0database\0%s\0client_min_messages\0error\0\0" % (user, user)
        self.socket.sendall(struct.pack(">ii", 8 + len(settings), 196608) + settings)
        self.until("Z(I)")

    def close(self):
        self.socket.close()

    def send(self, *messages):
        try:
            self.socket.sendall(b"".join(messages))
        except (BrokenPipeError, ConnectionResetError):
            pass  # the server has closed already, and what it said can still be read

    def next(self):
        """The next answer in short; `end` when the server has closed."""
        while True:
            if len(self.received) >= 5:
                (length,) = struct.unpack(">i", self.received[1:5])
                if len(self.received) > length:
                    kind, body = chr(self.received[0]), self.received[5 : length + 1]
                    self.received = self.received[length + 1 :]
                    if kind in "SNK":
                        continue
                    return short(kind, body)
            try:
                data = self.socket.recv(65536)
            except ConnectionResetError:
                data = b""
            if not data:
                assert not self.received, "a message that is cut"
                return "end"
            self.received += data

    def until(self, *last):
        answers = [self.next()]
        while answers[-1] not in last:
            answers.append(self.next())
        return answers


def short(kind, body):
    if kind == "E":
        fields = {field[:1]: field[1:].decode() for field in body.split(b"\0") if field}
        return ("FATAL" if fields[b"V"] == "FATAL" else "E") + f"({fields[b'C']})"
    if kind == "Z":
        return f"Z({body.decode()})"
    return kind


def prepare(connection):
    for sql in (b"drop table if exists t, c", b"create table t (id int primary key)", b"create table c (id int primary key)"):
        connection.send(query(sql))
        connection.until("Z(I)")
    connection.send(query(b"insert into t values (1), (2), (3)"))
    connection.until("Z(I)")


def enter(connection, state):
    connection.send(query(b"truncate c"))
    connection.until("Z(I)")
    for sent in STATES[state]:
        connection.send(sent)
        if sent[:1] == b"Q":
            connection.until("Z(I)", "Z(T)", "Z(E)", "G")
    if STATES[state] and STATES[state][-1] == FLUSH:
        connection.until("2" if state == "a pipeline" else "E(42601)" if state == "skipping" else "s" if "portal" in state else "G")


def normalized(answers):
    """The same for what differs on purpose. Before it closes a connection, PostgreSQL says nothing, one error or two;
    function calls are not supported here; a `Bind` is read in full before its statement is looked for."""
    while len(answers) > 1 and answers[-1] == "end" and re.match(r"E\(08|FATAL", answers[-2]):
        answers = answers[:-2] + ["end"]
    same = {"E(42883)": "E(0A000)", "E(26000)": "E(08P01)"}
    return [same.get(answer, answer) for answer in answers]


def recorded():
    cases = {}
    for line in RECORDED.read_text().splitlines():
        case, answers = line.split(" > ")
        cases[tuple(case.split(" | "))] = [part.split() for part in answers.split("|")]
    return cases


@pytest.fixture(scope="module")
def port(tmp_path_factory):
    from conftest import Server

    server = Server(tmp_path_factory.mktemp("messages") / "data")
    prepare(Connection(server.ports["postgres"], b"oribi"))
    yield server.ports["postgres"]
    assert server.stop() == 0, server.log_text()


@pytest.mark.parametrize("state", STATES)
def test_messages_are_answered_as_postgres_does(port, state):
    expected = recorded()
    differ = []
    for name, sent in MESSAGES.items():
        at_once, later = expected[state, name]
        connection = Connection(port, b"oribi")
        enter(connection, state)
        connection.send(sent)
        try:
            # A client may wait for this before it sends anything more.
            answers = [connection.next() for _ in at_once if "end" not in at_once]
            connection.send(*AFTER)
            answers += connection.until("end")
        except TimeoutError:
            answers = ["silence"]
        connection.close()
        if normalized(answers) != normalized(at_once + later):
            differ.append(f"{name}: {' '.join(answers)} instead of {' '.join(at_once)} | {' '.join(later)}")
    assert not differ, f"in {state}:\n" + "\n".join(differ)


def test_a_portal_is_not_about_tables_of_another_schema(port):
    """Bound before `search_path` changes, it is refused: PostgreSQL reads the tables that the names meant then."""
    connection = Connection(port, b"oribi")
    bound_p = message(b"B", b"p\0\0" + b"\0\0\0\0\0\0")
    execute_p = message(b"E", b"p\0" + struct.pack(">i", 0))
    setting = [parse(b"set search_path to elsewhere"), bind(), execute()]
    connection.send(parse(ROWS), bound_p, *setting, execute_p, SYNC)
    assert connection.until("Z(I)") == ["1", "2", "1", "2", "C", "E(0A000)", "Z(I)"]
    connection.send(query(b"reset search_path"), parse(ROWS), bound_p, execute_p, SYNC)
    assert connection.until("Z(I)")[-2:] == ["C", "Z(I)"]
    assert connection.until("Z(I)") == ["1", "2", "D", "D", "D", "C", "Z(I)"]
    connection.close()


def record(port):
    """Writes down what PostgreSQL answers. Here time decides what came at once: nothing depends on it but the record."""
    prepare(Connection(port, b"postgres"))
    lines = []
    for state, name in CASES:
        connection = Connection(port, b"postgres")
        enter(connection, state)
        connection.send(MESSAGES[name])
        at_once = []
        connection.socket.settimeout(0.1)
        try:
            at_once = []
            while at_once[-1:] != ["end"]:
                at_once.append(connection.next())
        except TimeoutError:
            pass
        connection.socket.settimeout(TIMEOUT_S)
        later = []
        if at_once[-1:] != ["end"]:
            connection.send(*AFTER)
            later = connection.until("end")
        connection.close()
        lines.append(f"{state} | {name} > {' '.join(at_once)} | {' '.join(later)}".replace("  ", " "))
        print(lines[-1])
    RECORDED.write_text("".join(line.rstrip() + "\n" for line in lines))


if __name__ == "__main__":
    record(int(sys.argv[1]))
