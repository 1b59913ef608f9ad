"""The same commands to Oribi and to memcached 1.6.18: the same answers.

`SCRIPT` is always run: memcached's answers to it are recorded in `memcached_answers.txt`. Where memcached 1.6.18 is
installed, both servers also get random commands, and `python test_memcached_differential.py` records the answers anew.
What differs on purpose (docs/protocols/memcached.md) is not asked, or made equal by `normalized`.
"""

import pathlib
import random
import re
import shutil
import socket
import subprocess
import time

import pytest

from conftest import DIES_WITH_US

RECORDED = pathlib.Path(__file__).with_name("memcached_answers.txt")
VERSION = "memcached 1.6.18"
LONG = "k" * 251
EDGE = "k" * 250

# Each entry is sent by itself. {cas KEY} is that document's cas, {old KEY} a lower one.
SCRIPT = [
    # Storage.
    *("set a 1 0 3\r\nabc\r\n", "get a\r\n", "set a 4294967295 100 0\r\n\r\n", "gets a\r\n", "mg a t f s v\r\n"),
    *("add a 0 0 1\r\nx\r\n", "add b 0 0 1\r\nx\r\n", "replace b 7 0 1\r\ny\r\n", "replace z 0 0 1\r\ny\r\n"),
    *("append b 9 100 2\r\nzz\r\n", "prepend b 0 0 2\r\nww\r\n", "get b\r\n", "append z 0 0 1\r\nx\r\n", "prepend z 0 0 1\r\nx\r\n"),
    *("mg b t f\r\n", "set b 0 0 4\r\n\r\n\r\n\r\n", "get b\r\n", "set b 0 0 1 noreply\r\nq\r\n", "get b a z\r\n"),
    *("set c 0 -1 1\r\nx\r\n", "get c\r\n", "set c 0 1000 1\r\nx\r\n", "mg c t\r\n", "set c 0 2592000 1\r\nx\r\n", "mg c t\r\n"),
    *("set c 0 2592001 1\r\nx\r\n", "get c\r\n", "add c 0 0 1\r\nx\r\n"),
    *(f"set {EDGE} 0 0 1\r\nx\r\n", f"get {EDGE}\r\n", f"get a {LONG}\r\n", f"delete {LONG}\r\n", f"touch {LONG} 0\r\n"),
    f"incr {LONG} 1\r\n",
    # cas.
    *("cas a 3 0 1 {cas a}\r\nn\r\n", "get a\r\n", "cas a 3 0 1 {old a}\r\no\r\n", "cas nil 0 0 1 5\r\no\r\n", "cas a 0 0 1 5 noreply\r\no\r\n"),
    *("get a\r\n", "cas a 0 0 1\r\n", "cas a 0 0 1 x\r\n"),
    # Retrieval, expiry, deletion.
    *("gat 100 a b\r\n", "mg a t\r\n", "gats 0 a\r\n", "mg a t\r\n", "gat x a\r\n", "gat -1 b\r\n", "get b\r\n", "gat 0\r\n", "gat\r\n"),
    *("touch a 200\r\n", "mg a t\r\n", "touch z 0\r\n", "touch a x\r\n", "touch a\r\n", "touch a -1\r\n", "get a\r\n", "touch a 0 noreply\r\n"),
    *("set d 0 0 1\r\nx\r\n", "delete d\r\n", "delete d\r\n", "delete d 0\r\n", "delete d 5\r\n", "delete d 0 noreply\r\n", "delete d noreply\r\n"),
    *("delete\r\n", "delete d 0 noreply x\r\n"),
    # Counters.
    *("set n 5 100 2\r\n10\r\n", "incr n 5\r\n", "decr n 3\r\n", "get n\r\n", "mg n t f\r\n", "decr n 100\r\n", "incr n 18446744073709551615\r\n"),
    *("incr n 1\r\n", "incr n -1\r\n", "incr n x\r\n", "incr n\r\n", "incr n 18446744073709551616\r\n", "incr z 1\r\n", "decr z 1\r\n"),
    *("set n 0 0 1\r\nx\r\n", "incr n 1\r\n", "set n 0 0 0\r\n\r\n", "incr n 1\r\n", "set n 0 0 3\r\n 7 \r\n", "incr n 1\r\n", "set n 0 0 2\r\n7x\r\n"),
    *("decr n 1\r\n", "set n 0 0 20\r\n18446744073709551616\r\n", "incr n 1\r\n", "set n 0 0 3\r\n007\r\n", "incr n 1 noreply\r\n", "incr n 1000\r\n"),
    # Malformed lines.
    *("\r\n", "x\r\n", "nonsense a b\r\n", "GET a\r\n", "get\r\n", "gets\r\n", "set\r\n", "set a\r\n", "set a 0 0\r\n", "set a 0 0 1 noreply x\r\n"),
    *("set a x 0 1\r\n", "set a 0 x 1\r\n", "set a 0 0 x\r\n", "set a 0 0 -1\r\n", "set a -1 0 1\r\n", "set a 0 0 2147483647\r\n"),
    *("set a 0 0 3\r\nabcd\r\n", "set a 0 0 3\r\nab\r\nxxx\r\n", "get a\r\n", f"set {LONG} 0 0 3\r\nabc\r\n", " get  a \r\n", "get a\n"),
    *("set a 0 0 3 what\r\nabc\r\n", "get a\r\n", "version x\r\n", "verbosity\r\n", "verbosity 1\r\n", "verbosity 1 noreply\r\n", "verbosity x\r\n"),
    *("flush_all x\r\n", "flush_all 1 2 3\r\n", "flush_all noreply\r\n", "get a\r\n", "set a 0 0 1\r\nx\r\n", "flush_all\r\n", "get a\r\n"),
    *("set a 0 0 1\r\nx\r\n", "flush_all 1000\r\n", "get a\r\n", "flush_all 0\r\n", "get a\r\n", "flush_all -1\r\n", "m\r\n", "mx a\r\n"),
    "set a 0 0 2000000\r\n" + "x" * 2000000 + "\r\n",
    "set a 0 0 2000000 noreply\r\n" + "x" * 2000000 + "\r\n",
    "ms a 2000000 q\r\n" + "x" * 2000000 + "\r\n",
    # mg.
    *("set a 5 0 3\r\nabc\r\n", "mg a\r\n", "mg a v\r\n", "mg a s v t f k Oopaque q u\r\n", "mg z\r\n", "mg z v q\r\n", "mg z k O1\r\n", "mg\r\n"),
    *("mg a c\r\n", "mg a v v\r\n", "mg a !\r\n", "mg a E1\r\n", "mg a x\r\n", "mg a T\r\n", "mg a Tx\r\n", "mg a S100 Pignored Lignored\r\n"),
    *("mg a Pignored Lignored\r\n", "mg a t T100 t\r\n", "mg a T200 t v\r\n", "mg a T0 t\r\n", "mg a R30 t\r\n", f"mg a O{'o' * 31}\r\n", f"mg a O{'o' * 32}\r\n"),
    *(f"mg {LONG} v\r\n", "ms YWE= 1 b\r\nx\r\n", "mg YWE= b v k\r\n", "mg aa v\r\n", "mg eg== b k\r\n", "mg * b\r\n", "mg YQ b\r\n", "mg a" + " v" * 17 + "\r\n", "mg a" + " v" * 18 + "\r\n"),
    # ms.
    *("ms m 2\r\nhi\r\n", "mg m v\r\n", "ms m 2 T100 F9\r\nho\r\n", "mg m v t f\r\n", "ms m 2 k O5 c\r\nhi\r\n", "ms m 0\r\n\r\n", "ms m 1 q\r\nx\r\n"),
    *("ms m 1 ME c k\r\ny\r\n", "ms new 1 ME\r\ny\r\n", "ms m 1 MA\r\ny\r\n", "ms m 1 MP\r\nz\r\n", "mg m v\r\n", "ms m 1 MR\r\nr\r\n", "ms z 1 MR\r\nr\r\n"),
    *("ms z 1 MA\r\nr\r\n", "ms m 1 MS\r\ns\r\n", "ms m 1 MX\r\ns\r\n", "ms m 1 M\r\ns\r\n", "ms m 1 MSS\r\ns\r\n", "ms m 1 C{cas m}\r\nt\r\n"),
    *("ms m 1 C{old m} q\r\nu\r\n", "ms z 1 C5\r\nu\r\n", "ms m 1 C{cas m} MA\r\nu\r\n", "ms m 1 C{old m} MA\r\nu\r\n", "ms m 1 C{cas m} MR\r\nu\r\n"),
    *("ms z 1 C5 MR\r\nu\r\n", "ms z 1 C5 MP\r\nu\r\n", "ms\r\n", "ms m\r\n", "ms m x\r\n", "ms m -1\r\n", "ms m 2 Fx\r\nhi\r\n", "ms m 2 T\r\nhi\r\n"),
    *("ms m 2 !\r\nhi\r\n", "ms m 2\r\nhello\r\n", "ms m 2 q\r\nhello\r\n", "ms bQ== 2 b k\r\nhi\r\n", "mg m v\r\n", "ms * 2 b\r\nhi\r\n"),
    *(f"ms m 2 O{'o' * 32}\r\nhi\r\n", "ms m 2" + " v" * 17 + "\r\n", "ms m 2 T-1\r\nhi\r\n", "mg m\r\n", f"ms {LONG} 2\r\n", "ms m 2 v s t\r\nhi\r\n"),
    # md.
    *("ms m 1\r\nx\r\n", "md m\r\n", "md m\r\n", "md m q\r\n", "ms m 1\r\nx\r\n", "md m q\r\n", "mg m\r\n", "ms m 1\r\nx\r\n", "md m C{old m} k O3\r\n"),
    *("md m C{cas m} k O3\r\n", "md z C5\r\n", "md\r\n", "md m v v\r\n", "md m Tx\r\n", "md m !\r\n", "md * b\r\n", "md bQ== b k\r\n"),
    # Stale and win.
    *("mg w N100 v t k\r\n", "mg w N100 v t\r\n", "mg w\r\n", "mg w v f\r\n", "ms w 1 T100\r\nx\r\n", "mg w v N100\r\n", "mg w R50 t\r\n", "mg w R200 t\r\n"),
    *("mg w R200 t\r\n", "mg w R50\r\n", "md w I T300\r\n", "mg w t v\r\n", "mg w t v\r\n", "md w I q\r\n", "mg w q\r\n", "mg w R1000 N5 v\r\n", "ms w 1 I C{old w} c\r\ny\r\n"),
    *("mg w v t\r\n", "ms w 1 C{cas w}\r\nz\r\n", "mg w v t\r\n", "md z I\r\n", "md w I C{old w}\r\n", "md w I C{cas w}\r\n", "mg w k O1 c\r\n", "mg w s\r\n", "get w\r\n"),
    *("ms w 1 ME\r\nx\r\n", "delete w\r\n", "mg w N0 t\r\n", "mg w t\r\n", "touch w 100\r\n", "mg w t\r\n"),
    # ma.
    *("ma c1\r\n", "ma c1 q\r\n", "ma c1 N0\r\n", "ma c1 v\r\n", "ma c2 N100 J13 v t\r\n", "ma c2 v t\r\n", "ma c2 D10 v\r\n", "ma c2 MD D3 v\r\n"),
    *("ma c2 M- v\r\n", "ma c2 M+ v\r\n", "ma c2 MI v\r\n", "ma c2 MX\r\n", "ma c2 Dx\r\n", "ma c2 Jx\r\n", "ma c2 T200 t v k O7\r\n", "ma c2 t T0 v\r\n"),
    *("ma c2 C{old c2}\r\n", "ma c2 C{cas c2} c v\r\n", "ma c2 q\r\n", "ma c2 q v\r\n", "ma c3 N0 J5 q\r\n", "ma c2 MD D1000 v\r\n", "ms c2 1\r\nx\r\n", "ma c2\r\n"),
    *("ma\r\n", "ma c2 v v\r\n", "ma Yw== b k N0 v\r\n", f"ma {LONG}\r\n", "ma z C5\r\n", "ma z k O1\r\n"),
    # me, and several at once.
    *("me z\r\n", "me\r\n", "mn\r\n", "mn x\r\n", "mg a v\r\nmg z v\r\nget a z\r\nset a 0 0 1\r\nx\r\nappend a 0 0 1\r\ny\r\nget a\r\nincr a 1\r\n"),
    "set p 0 0 1\r\n1\r\nincr p 1\r\nincr p 1\r\ndelete p\r\nincr p 1\r\nadd p 0 0 1\r\n5\r\nget p\r\n",
]


class Connection:
    """A connection to one of the servers; remembers nothing but what that server's cas values are."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=30)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self, request):
        """The answer to a request; one for a document that is never there shows where it ends."""
        end = b"EN kend-of-answer\r\n"
        self.socket.sendall(request + b"mg end-of-answer k\r\n")
        answer = b""
        while not answer.endswith(end):
            received = self.socket.recv(1 << 20)
            assert received, f"closed after {answer!r}"
            answer += received
        return answer[: -len(end)]

    def run(self, text):
        """The answer to a request in which the cas values of this server stand for their places."""

        def cas(match):
            answer = self.ask(f"mg {match[2]} c u\r\n".encode())
            found = re.search(rb" c(\d+)", answer)
            value = int(found[1]) if found else 3
            return str(value - (match[1] == "old"))

        return normalized(self.ask(re.sub(r"\{(cas|old) (\w+)\}", cas, text).encode()))


def normalized(answer):
    """An answer without what may differ: cas values, seconds that have just passed, a counter's padding."""
    lines = []
    rest = answer
    while rest:
        line, _, rest = rest.partition(b"\r\n")
        words = line.decode("latin-1").split(" ")
        length = {"VALUE": 3, "VA": 1}.get(words[0])
        if length and len(words) > length:
            count = int(words[length])
            value, rest = rest[:count], rest[count + 2 :]
            value = value.rstrip(b" ") if value.strip(b" ").isdigit() else value
            words[length] = str(len(value))
        if words[0] == "VALUE" and len(words) == 5:
            words[4] = "<cas>"
        elif words[0] in ("HD", "VA", "EN", "NS", "EX", "NF"):
            start = 2 if length else 1
            words[start:] = [normalized_flag(word) for word in words[start:]]
        elif words[0] == "VERSION":
            words[1:] = ["<version>"]
        lines.append(" ".join(words))
        if length and len(words) > length:
            lines.append(repr(value)[2:-1])
    return "\n".join(lines)


def normalized_flag(word):
    if re.fullmatch(r"c[1-9]\d*", word):
        return "c<cas>"
    if re.fullmatch(r"t\d+", word):
        # Times are given in hundreds of seconds, and read a moment later.
        return f"t{round(int(word[1:]) / 100) * 100}"
    return word


def entry(request, answer):
    shown = request if len(request) < 1000 else request[:40] + "…"
    return f"> {shown!r}\n{answer}\n"


@pytest.fixture
def memcached():
    """A port of memcached 1.6.18."""
    with running_memcached() as port:
        yield port


class running_memcached:
    def __enter__(self):
        if not is_installed():
            pytest.skip(f"{VERSION} is not installed")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.process = subprocess.Popen([*DIES_WITH_US, "memcached", "-l", "127.0.0.1", "-p", str(port), "-U", "0", "-u", "nobody"])
        while self.process.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                return port
            except ConnectionRefusedError:
                time.sleep(0.05)
        raise RuntimeError(f"memcached ended: {self.process.returncode}")

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()


def is_installed():
    if not shutil.which("memcached"):
        return False
    return subprocess.run(["memcached", "-V"], capture_output=True, text=True).stdout.strip() == VERSION


def answers(port):
    connection = Connection(port)
    # A document that nothing touches, so that cas values begin above those that the script makes up.
    connection.ask(b"set warm 0 0 1\r\nx\r\n" * 10)
    return "".join(entry(request, connection.run(request)) for request in SCRIPT)


def test_the_script_is_answered_as_memcached_answers_it(server):
    got, recorded = answers(server.ports["memcached"]), RECORDED.read_text()
    assert got.split("> ") == recorded.split("> ")


@pytest.mark.parametrize("seed", range(10))
def test_random_commands_are_answered_as_memcached_answers_them(server, memcached, seed):
    chance = random.Random(seed)
    ours, theirs = Connection(server.ports["memcached"]), Connection(memcached)
    for connection in (ours, theirs):
        connection.ask(b"set warm 0 0 1\r\nx\r\n" * 10)
    history = []
    for _ in range(1000):
        commands = [command(chance) for _ in range(chance.choice([1, 1, 1, 2, 5]))]
        # A cas is asked for before, so nothing may come between.
        compares = [text for text in commands if "{" in text]
        request = compares[0] if compares else "".join(commands)
        history = [*history[-8:], request]
        assert ours.run(request) == theirs.run(request), f"seed {seed}, after {history}"


def command(chance):
    """A random command, mostly well-formed."""
    pick = chance.choice
    key = pick("abcd")
    # Counters are apart, since memcached pads them: their length is not asked for, and nothing is appended to them.
    counter = pick("no")
    number = pick(["0", "1", "9", "10", "99", "18446744073709551615"])
    value = pick(["", "x", "hello", "12", "5", "99", "  3", "v" * 3000, "\r\nx", "7up"])
    exptime = pick(["0", "0", "100", "2592000", "-1"])
    flags = pick(["0", "1", "4294967295"])
    noreply = pick(["", "", "", " noreply"])
    cas = pick(["{cas %s}", "{cas %s}", "{old %s}"]) % key
    kind = pick("store store store get get cas gat touch delete count meta meta meta meta flush bad".split())
    match kind:
        case "store":
            verb = pick("set set add replace append prepend".split())
            return f"{verb} {key} {flags} {exptime} {len(value)}{noreply}\r\n{value}\r\n"
        case "get":
            return f"{pick(['get', 'gets'])} {' '.join(chance.choices('abcdz', k=pick([1, 2, 5])))}\r\n"
        case "cas":
            return f"cas {key} {flags} {exptime} {len(value)} {cas}{noreply}\r\n{value}\r\n"
        case "gat":
            return f"{pick(['gat', 'gats'])} {exptime} {key} z\r\n"
        case "touch":
            return f"touch {key} {exptime}{noreply}\r\n"
        case "delete":
            return f"delete {pick([key, key, counter])}{noreply}\r\n"
        case "count":
            change = f"{pick(['incr', 'decr'])} {counter} {number}{noreply}\r\n"
            return pick([change, change, f"set {counter} 0 {exptime} {len(number)}\r\n{number}\r\nget {counter}\r\n"])
        case "flush":
            return pick(["flush_all\r\n", "mn\r\n", "mn\r\n", "mn\r\n", "mn\r\n", "mn\r\n"])
        case "bad":
            return pick(["get\r\n", "x y z\r\n", "set a 0 0\r\n", "incr a x\r\n", "mg a v v\r\n", "ms a 1 MX\r\nx\r\n", "touch a\r\n"])
    # Documents that are stale or promised are apart too: memcached's counters forget it when they get longer.
    win = pick("stuvw")
    verb = pick(["mg", "ms", "md", "ma", "win"])
    common = ["k", f"O{chance.randrange(1000)}", *pick([[], [], ["q"]])]
    match verb:
        case "mg":
            extra = ["s", "f", "v", "c", pick(["t", "T100", "T0", "T700", "u"])]
        case "ms":
            extra = ["c", f"F{flags}", pick(["T0", "T100", "T-1"]), pick(["ME", "MA", "MP", "MR", "MS", "MS"])]
            extra += pick([[], [], [f"C{cas}"]])
        case "md":
            extra = pick([[], [], [f"C{cas}"]])
        case "ma":
            key, cas = counter, f"{{cas {counter}}}"
            extra = ["v", f"D{number}", pick(["MI", "MD", "M+", "M-"]), *pick([[], ["N0", f"J{number}"], ["N100", "t"], [f"C{cas}"]])]
        case "win":
            key = win
            cas = pick(["{cas %s}", "{old %s}"]) % win
            verb, extra = pick(
                [
                    ("mg", ["v", "N300", "R200", "t"]),
                    ("mg", ["v", "R200", "t", "c"]),
                    ("mg", ["v", "T100", "f"]),
                    ("mg", ["v", "s"]),
                    ("ms", ["T100", "c"]),
                    ("ms", ["T300"]),
                    ("ms", ["I", f"C{cas}", "T500"]),
                    ("md", ["I"]),
                    ("md", ["I", "T100"]),
                    ("md", ["I", f"C{cas}"]),
                    ("md", []),
                ]
            )
    chosen = [*chance.sample(common, k=chance.randrange(len(common) + 1)), *extra]
    chance.shuffle(chosen)
    line = " ".join([verb, key, *([str(len(value))] if verb == "ms" else []), *chosen])
    return f"{line}\r\n" + (f"{value}\r\n" if verb == "ms" else "")


if __name__ == "__main__":
    with running_memcached() as recording:
        RECORDED.write_text(answers(recording))
