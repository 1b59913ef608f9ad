"""What others see while one client keeps the server busy: for each noise, the latency of single requests of other clients
(99th percentile and longest, in milliseconds; the former also as a multiple of what it is alone) and the most memory that the server
had resident, with what is of the program's file. Each noise has a server of its own, of which some is under a small budget. `crowds`
names those of crowds of clients."""

import argparse
import contextlib
import http.client
import json
import multiprocessing
import os
import pathlib
import resource
import selectors
import signal
import socket
import struct
import tempfile
import threading
import time

import psycopg
from conftest import Server, run_oribi

# The longest that a probe waits for an answer, and the pause between two of its requests, in seconds.
PATIENCE, PAUSE = 120, 0.002

# What a client gives the kernel at a time, which on loopback brings it to the server at once: nothing else runs on the processor until it has.
PIECE_BYTES = 64 << 10


def memcached(ports):
    client = socket.create_connection(("127.0.0.1", ports["memcached"]), timeout=PATIENCE)
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return client, client.makefile("rb")


def ask(ports, request, lines):
    """A request of memcached's text protocol that is answered with so many lines."""
    client, answers = memcached(ports)

    def once():
        client.sendall(request)
        for _ in range(lines):
            answers.readline()

    return once


def execute(ports, sql):
    connection = psycopg.connect(
        host="127.0.0.1", port=ports["postgres"], user="oribi", dbname="oribi", autocommit=True, prepare_threshold=0
    )
    return lambda: connection.execute(sql)


def healthz(ports):
    def once():
        connection = http.client.HTTPConnection("127.0.0.1", ports["http"], timeout=PATIENCE)
        connection.request("GET", "/healthz")
        assert connection.getresponse().status == 200
        connection.close()

    return once


# What others do that is about no table of the noise's: nobody of these is to wait.
GOOD = "get", "set", "select 1", "/healthz"

# What others do. `hot` is a document of another table than that which is loaded, `own` is of that one.
PROBES = {
    "get": lambda ports: ask(ports, b"get hot\r\n", 3),
    "set": lambda ports: ask(ports, b"set hot 0 0 4\r\nwarm\r\n", 1),
    "set of the table": lambda ports: ask(ports, b'set public/rows/5 0 0 8\r\n{"n": 1}\r\n', 1),
    "update of the table": lambda ports: execute(ports, "update rows set n = 0 where id = 7"),
    "select 1": lambda ports: execute(ports, "select 1"),
    "/healthz": healthz,
}


def run_at_once():
    """A probe does not wait for the processor, which it shares with the noise and the server as no client elsewhere would: what is measured
    is the server's answer. Where that is not allowed, what it waits for the processor is measured too. Returns whether it is."""
    with contextlib.suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
        return True
    return False


def run_as_others():
    """Whoever is still waiting for an answer is not to wait for a probe that ends."""
    with contextlib.suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


# This session's share of the processors, and whether the kernel shares them out by session.
SHARE, BY_SESSION = pathlib.Path("/proc/self/autogroup"), pathlib.Path("/proc/sys/kernel/sched_autogroup_enabled")


@contextlib.contextmanager
def from_elsewhere():
    """A noise takes what the server leaves of the processors, as clients on other machines take none of them: this session's share, which the
    server has no part in, is the least meanwhile. Not where probes, which are of this session too, may not run at once. Yields whether it is."""
    at_once = run_at_once()
    run_as_others()
    is_shared_out = at_once and BY_SESSION.exists() and BY_SESSION.read_text().strip() == "1"
    share = SHARE.read_text().split()[-1:] if is_shared_out else []
    try:
        for _ in share:
            SHARE.write_text("19")
        yield bool(share)
    finally:
        for before in share:
            SHARE.write_text(before)


def probe(name, ports, ready, stop, report):
    """Asks again and again until told to stop; reports how long each answer took, in seconds."""
    run_at_once()
    once, took = PROBES[name](ports), []
    for _ in range(20):
        once()
    ready.wait()
    while not stop.is_set():
        started = time.perf_counter()
        try:
            once()
        except Exception as error:  # Who is refused or dropped has waited for nothing: that is worse.
            report.put((name, None, repr(error)))
            return
        answered = time.perf_counter()
        # An answer that comes when all is over has waited for those who leave.
        if not stop.is_set():
            took.append(answered - started)
        time.sleep(PAUSE)
    run_as_others()
    report.put((name, sorted(took), None))


def machine(processor, ready, stop, report):
    """What the machine itself makes everybody wait: sleeps on one processor, ahead of all else that runs there, and reports how much later than
    asked it came back. Longer than some hundred microseconds are the kernel, which does not stop in between, and the host that takes the processor."""
    os.sched_setaffinity(0, {processor})
    run_at_once()
    ready.wait()
    late = []
    while not stop.is_set():
        started = time.perf_counter()
        time.sleep(PAUSE)
        late.append(time.perf_counter() - started - PAUSE)
    run_as_others()
    report.put((f"processor {processor}", sorted(late), None))


class Others:
    """One process for each probe, so that they do not wait for each other."""

    def __init__(self, server):
        context = multiprocessing.get_context("spawn")
        processors = sorted(os.sched_getaffinity(0))
        self.ready, self.stop, self.report = context.Barrier(len(PROBES) + len(processors) + 1), context.Event(), context.Queue()
        shared = (self.ready, self.stop, self.report)
        probes = [(probe, (name, server.ports, *shared)) for name in PROBES]
        probes += [(machine, (processor, *shared)) for processor in processors]
        self.processes = [context.Process(target=target, args=args, daemon=True) for target, args in probes]

    def __enter__(self):
        for process in self.processes:
            process.start()
        self.ready.wait(timeout=PATIENCE)
        return self

    def __exit__(self, *_):
        self.stop.set()

    def results(self):
        told = {}
        for _ in self.processes:
            name, took, error = self.report.get(timeout=2 * PATIENCE)
            told[name] = {"error": error} if error else {
                "p99": took[len(took) * 99 // 100] * 1000, "max": took[-1] * 1000, "requests": len(took)
            }  # fmt: skip
        for process in self.processes:
            process.join()
        return dict(sorted(told.items(), key=lambda each: each[0] not in PROBES))


def couchbase(opcode, key, extras=b"", value=b""):
    """A request of Couchbase's binary protocol."""
    sizes = len(key), len(extras), 0, 0, len(extras) + len(key) + len(value), 0, 0
    return struct.pack(">BBHBBHIIQ", 0x80, opcode, *sizes) + extras + key + value


def postgres(kind, body):
    """A message of PostgreSQL's protocol."""
    return kind + struct.pack(">i", 4 + len(body)) + body


POSTGRES_STARTUP = postgres(b"", b"\0\3\0\0user\0oribi\0database\0oribi\0\0")


class Noise:
    """What one client, or a crowd of them, does to the others."""

    flags = ("--memory", "1GiB")
    # How many rows the table has beforehand.
    rows = 1000

    def __init__(self, options):
        self.options = options

    def prepare(self, server):
        pass

    def make(self, server):
        raise NotImplementedError

    # What it does afterwards, in time of its own.
    stay = None


class Update(Noise):
    """`UPDATE` of all rows of a table that lies in files"""

    def __init__(self, options):
        super().__init__(options)
        self.rows = options.rows

    def make(self, server):
        with server.sql() as sql:
            sql.execute("update rows set n = n + 1")


class Import(Noise):
    """`oribi import` of a file into the table"""

    def prepare(self, server):
        self.file = server.data.parent / "rows.csv"
        with self.file.open("w") as lines:
            lines.write("id,n,note\n")
            lines.writelines(f"{i},{i},{'x' * 90}\n" for i in range(10_000, 10_000 + self.options.rows))

    def make(self, server):
        run_oribi("import", "rows", self.file, "--host", f"127.0.0.1:{server.ports['postgres']}")


class LongString(Noise):
    """`length(repeat('x', 2000000000))`, two at a time"""

    flags = ("--memory", "256MiB")
    sql = "select length(repeat('x', 2000000000))"

    def make(self, server):
        def run():
            with server.sql() as sql, contextlib.suppress(psycopg.Error):
                sql.execute(self.sql)

        together([run] * 2)


class LongPad(LongString):
    """`replace(repeat('x', 1000000), 'x', repeat('y', 1000))`, two at a time"""

    sql = "select length(replace(repeat('x', 1000000), 'x', repeat('y', 1000)))"


class WideSelect(LongString):
    """`select` of 1,600 columns, two at a time"""

    sql = "select " + ", ".join(f"n + {i}" for i in range(1600)) + " from rows"


class Passwords(Noise):
    """2,000 attempts of SASL PLAIN in one go"""

    def __init__(self, options):
        super().__init__(options)
        password = pathlib.Path(tempfile.mkstemp()[1])
        password.write_text("right")
        self.flags = (*self.flags, "--couchbase-user", "user", "--couchbase-password-file", str(password))

    def make(self, server):
        request = couchbase(0x21, b"PLAIN", value=b"\0user\0wrong")
        with socket.create_connection(("127.0.0.1", server.ports["couchbase"]), timeout=PATIENCE) as client:
            client.sendall(request * 2000)
            client.shutdown(socket.SHUT_WR)
            with contextlib.suppress(ConnectionError):
                while client.recv(1 << 16):
                    pass


class DrippingLine(Noise):
    """a line of 1 MiB that comes in small pieces, from 4 clients"""

    def make(self, server):
        def run():
            with socket.create_connection(("127.0.0.1", server.ports["memcached"]), timeout=PATIENCE) as client:
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                with contextlib.suppress(ConnectionError):
                    for _ in range((1 << 20) // 64):
                        client.sendall(b"x" * 64)

        together([run] * 4)


class HalfFrames(Noise):
    """half a frame of 20 MiB from each of 150 clients that said nothing yet"""

    flags = ("--memory", "256MiB")

    def make(self, server):
        head = struct.pack(">BBHBBHIIQ", 0x80, 0x01, 3, 8, 0, 0, 19 << 20, 0, 0)
        hold(server, "couchbase", 150, head + bytes(18 << 20))


class SlowReaders(Noise):
    """200 clients that each get a document of 20 MiB and do not read it"""

    flags = ("--memory", "256MiB")

    select = couchbase(0x89, b"default")

    def prepare(self, server):
        with socket.create_connection(("127.0.0.1", server.ports["couchbase"]), timeout=PATIENCE) as client:
            client.sendall(self.select + couchbase(0x01, b"big", bytes(8), bytes(18 << 20)))
            client.settimeout(5)
            assert client.recv(24, socket.MSG_WAITALL)[6:8] == client.recv(24, socket.MSG_WAITALL)[6:8] == b"\0\0"

    def make(self, server):
        hold(server, "couchbase", 200, self.select + couchbase(0x00, b"big"))


class KeptStatements(Noise):
    """400 prepared statements of 1 MiB, kept by name"""

    flags = ("--memory", "256MiB")

    def make(self, server):
        comment = b"x" * (1 << 20)
        parse = b"".join(postgres(b"P", b"s%03d\0select 1 /*%b*/\0\0\0" % (n, comment)) for n in range(400))
        hold(server, "postgres", 1, POSTGRES_STARTUP + parse + postgres(b"S", b""))


class Scrapers(Noise):
    """200 clients of `/metrics` that do not read"""

    def make(self, server):
        hold(server, "http", 200, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n" * 50)


class Crowds(Noise):
    """Crowds on each door at once."""

    flags = (
        "--memory", "256MiB", "--memcached-connections-max", "9000", "--couchbase-connections-max", "9000",
        "--postgres-connections-max", "1100", "--kudu-connections-max", "1100",
    )  # fmt: skip

    def prepare(self, server):
        with contextlib.closing(server.memcached()) as client:
            # Which is there once it is answered.
            client.set("big", bytes(1 << 20), noreply=False)

    def make(self, server):
        self.held = Held()
        for door, (clients, request) in self.crowds.items():
            self.held.add(server, door, clients, request)
        self.held.send(5)

    def stay(self):
        with self.held:
            self.held.send(5)


# As many as a process may have, and some for the server's files.
MOST = min(20_000, resource.getrlimit(resource.RLIMIT_NOFILE)[1] - 300)


class Silent(Crowds):
    """connections that say nothing, 20,000 or as many as a process may have: 1,000 on each of three doors, else on the key-value doors"""

    each = (MOST - 3000) // 2
    crowds = {
        "memcached": (each, b""), "couchbase": (each, b""), "postgres": (1000, b""), "kudu-master": (1000, b""),
        "kudu-tserver": (1000, b""),
    }  # fmt: skip


class HalfFramesEverywhere(Crowds):
    """half a frame of 1 MiB from each of 1,000 clients on each door"""

    half = bytes(512 << 10)
    crowds = {
        "memcached": (1000, b"set half 0 0 1048576\r\n" + half),
        "couchbase": (1000, struct.pack(">BBHBBHIIQ", 0x80, 0x01, 3, 8, 0, 0, 1 << 20, 0, 0) + half),
        "postgres": (1000, POSTGRES_STARTUP + b"Q" + struct.pack(">i", 1 << 20) + half),
        "kudu-tserver": (1000, b"hrpc\x09\0\0" + struct.pack(">I", 1 << 20) + half),
        "http": (1000, b"GET / HTTP/1.1\r\nX: " + half),
    }


class NobodyReads(Crowds):
    """1,000 clients on each door that ask for megabytes and do not read"""

    crowds = {
        "memcached": (1000, b"get big\r\n" * 8),
        "couchbase": (1000, couchbase(0x89, b"default") + couchbase(0x00, b"big") * 8),
        "postgres": (1000, POSTGRES_STARTUP + postgres(b"Q", b"select value from default.kv where key = 'big'\0") * 8),
        "http": (1000, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"),
    }


class NobodyReadsDocuments(Crowds):
    """1,000 PostgreSQL clients that ask for a document of 1 MiB by a planned statement and do not read"""

    crowds = {door: crowd for door, crowd in NobodyReads.crowds.items() if door == "postgres"}


class NobodyReadsScans(Crowds):
    """200 PostgreSQL clients that ask for all of eight rows of 20 MiB and do not read"""

    flags = ("--memory", "512MiB", *Crowds.flags[2:])
    crowds = {"postgres": (200, POSTGRES_STARTUP + postgres(b"Q", b"select * from long\0"))}

    def prepare(self, server):
        with server.sql() as sql:
            sql.execute("create table long (id integer primary key, note text)")
            for n in range(8):
                sql.execute(f"insert into long values ({n}, repeat('x', {20 << 20}))")


class NobodyReadsFilters(NobodyReadsScans):
    """200 PostgreSQL clients that ask for those of eight rows of 20 MiB that pass a filter and do not read"""

    crowds = {"postgres": (200, POSTGRES_STARTUP + postgres(b"Q", b"select * from long where note like 'x%'\0"))}


class Drip(Noise):
    """200 clients that send a byte a second"""

    def make(self, server):
        clients = [socket.create_connection(("127.0.0.1", server.ports["memcached"])) for _ in range(200)]
        for byte in b"get x"[: self.options.seconds]:
            for client in clients:
                client.send(bytes([byte]))
            time.sleep(1)


def together(works):
    threads = [threading.Thread(target=work) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


class Held(contextlib.ExitStack):
    """Clients that send what is taken of their requests, and read nothing."""

    def __init__(self):
        super().__init__()
        self.writable = self.enter_context(selectors.DefaultSelector())

    def add(self, server, door, clients, request):
        for _ in range(clients):
            client = self.enter_context(socket.socket())
            # What a client does not read is in the server, and not in the client's kernel.
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.connect(("127.0.0.1", server.ports[door]))
            client.setblocking(False)
            if request:
                self.writable.register(client, selectors.EVENT_WRITE, memoryview(request))

    def send(self, seconds):
        """Whatever is taken for so many seconds."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            if not self.writable.get_map():
                time.sleep(left)
                return
            for key, _ in self.writable.select(left):
                self.send_some(key)

    def send_some(self, key):
        try:
            sent = key.fileobj.send(key.data[:PIECE_BYTES])
        except BlockingIOError:
            return
        except OSError:  # It was hung up on.
            sent = len(key.data)
        self.writable.unregister(key.fileobj)
        if rest := key.data[sent:]:
            self.writable.register(key.fileobj, selectors.EVENT_WRITE, rest)


def hold(server, door, clients, request):
    """So many clients that stay for some seconds."""
    with Held() as held:
        held.add(server, door, clients, request)
        held.send(4)


NOISES = [
    Update, Import, LongString, LongPad, WideSelect, Passwords, DrippingLine, HalfFrames, SlowReaders, KeptStatements, Scrapers,
    Silent, HalfFramesEverywhere, NobodyReads, NobodyReadsDocuments, NobodyReadsScans, NobodyReadsFilters, Drip,
]  # fmt: skip


def memory_mib(server):
    """The most that was resident, and what is of the program's file by now: pages that the kernel takes back when it wants them, and reads
    again."""
    return tuple(server.memory_kib(what) / 1024 for what in ("VmHWM", "RssFile"))


def load(server, rows):
    with contextlib.closing(server.memcached()) as client:
        client.set("hot", "warm")
    with server.sql() as sql:
        sql.execute("create table rows (id bigint primary key, n bigint, note text)")
        sql.execute(f"insert into rows select i, i, repeat('x', 90) from generate_series(1, {rows}) as s(i)")


# So long that a 99th percentile is that of a thousand requests.
ALONE_SECONDS = 5


def measure(kind, options):
    """What others saw before, and while, a noise was made."""
    noise = kind(options)
    with tempfile.TemporaryDirectory(prefix="oribi-bench-neighbours-") as folder:
        server = Server(pathlib.Path(folder) / "data", *noise.flags, "--log", "warn", "--flush-quiet-ms", "200")
        try:
            load(server, noise.rows)
            noise.prepare(server)
            # What was written is in files afterwards, and no row is cached.
            server.restart()
            run = {}
            phases = {"alone": lambda: time.sleep(ALONE_SECONDS), "beside": lambda: noise.make(server), "afterwards": noise.stay}
            for name, make in phases.items():
                if not make:
                    continue
                pathlib.Path(f"/proc/{server.process.pid}/clear_refs").write_text("5")
                with Others(server) as others:
                    started = time.perf_counter()
                    make()
                    seconds = time.perf_counter() - started
                    time.sleep(0.2)
                resident, program = memory_mib(server)
                run[name] = {"seconds": seconds, "others": others.results(), "resident MiB": resident, "program MiB": program}
            return run
        finally:
            server.kill()


def times_alone(run, phase, name):
    """A probe's 99th percentile in a phase, as a multiple of what it is alone; infinite for who was refused."""
    before, then = (run[each]["others"][name].get("p99") for each in ("alone", phase))
    return then / before if before and then else float("inf")


def memory(phase):
    return f"{phase['resident MiB']:,.0f} MiB, of the program {phase['program MiB']:,.0f}"


def print_run(kind, run):
    seconds = ", ".join(f"{phase['seconds']:.1f} s" for phase in run.values())
    print(f"\n{kind.__name__}: {kind.__doc__}; {seconds}")
    print(f"    {'most memory':<22}" + "| ".join(f"{memory(phase):<51}" for phase in run.values()).rstrip())
    for name in run["alone"]["others"]:
        answers = [
            answer.get("error")
            or f"p99 {answer['p99']:8.1f} {times_alone(run, phase, name):6.1f} times  max {answer['max']:8.1f}  of {answer['requests']:,}"
            for phase, answer in ((phase, run[phase]["others"][name]) for phase in run)
        ]
        print(f"    {name:<22}" + "| ".join(f"{each:<51}" for each in answers).rstrip(), flush=True)


def print_summary(results):
    """Of each noise: what is asked of all of them, and of crowds."""
    print("\nof those who ask for something else: the longest wait, and the largest multiple of a 99th percentile alone; most memory")
    for noise, run in results.items():
        noisy = [phase for phase in run if phase != "alone"]
        longest = max(run[phase]["others"][name].get("max", float("inf")) for phase in noisy for name in GOOD)
        times = max(times_alone(run, phase, name) for phase in noisy for name in GOOD)
        most = max((run[phase] for phase in noisy), key=lambda phase: phase["resident MiB"])
        print(f"    {noise:<22}{longest:8,.0f} ms {times:8.1f} times {'':4}{memory(most)}")


CROWDS = [Silent, HalfFramesEverywhere, NobodyReads, Drip]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    names = [kind.__name__ for kind in NOISES]
    parser.add_argument("noises", nargs="*", help=f"of {', '.join(names)}; crowds; all, as without any")
    parser.add_argument("--rows", type=int, default=200_000, help="that are updated or imported")
    parser.add_argument("--seconds", type=int, default=5, help="of clients that drip")
    parser.add_argument("--json", type=pathlib.Path, help="file to write all results into")
    options = parser.parse_args()
    # So that the session gets its share back.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    for unknown in set(options.noises) - {*names, "crowds", "all"}:
        parser.error(f"there is no noise {unknown}")
    crowds = CROWDS if "crowds" in options.noises else []
    is_all = not options.noises or "all" in options.noises
    wanted = [kind for kind in NOISES if is_all or kind.__name__ in options.noises or kind in crowds]
    # The server inherits it.
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    results = {}
    print("milliseconds that others waited: alone | beside it | beside those who came and stay")
    with from_elsewhere() as is_from_elsewhere:
        print("noises take", "what the server leaves of the processors" if is_from_elsewhere else "their share of the processors")
        for kind in wanted:
            results[kind.__name__] = measure(kind, options)
            print_run(kind, results[kind.__name__])
    print_summary(results)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
