"""A private PostgreSQL 15 in a temporary folder: C collation, UTC, reached by a unix socket alone."""

import os
import pathlib
import shutil
import subprocess
import tempfile
import time

import psycopg

OPTIONS = {
    "listen_addresses": "",
    "timezone": "UTC",
    "datestyle": "ISO, MDY",
    "fsync": "off",
    "max_connections": "10",
    "jit": "off",
    # A case that asks for millions of rows is a mistake.
    "statement_timeout": "10s",
}


def binaries():
    """The folder of PostgreSQL's programs."""
    debian = pathlib.Path("/usr/lib/postgresql/15/bin")
    if (debian / "initdb").exists():
        return debian
    found = shutil.which("initdb")
    if found is None:
        raise RuntimeError("PostgreSQL 15 is missing: scripts/prepare clients installs it")
    return pathlib.Path(found).parent


def as_user(command):
    """PostgreSQL refuses to run as root."""
    return ["runuser", "-u", "postgres", "--", *command] if os.geteuid() == 0 else command


class Reference:
    """A running PostgreSQL; a context manager that removes all of it. `options` are settings instead of, or beside, the usual
    ones."""

    def __init__(self, **options):
        self.options = OPTIONS | options

    def __enter__(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="oribi-pg-"))
        if os.geteuid() == 0:
            shutil.chown(self.folder, "postgres")
        data = self.folder / "data"
        initdb = [binaries() / "initdb", "-D", data, "-E", "UTF8", "--lc-collate=C", "--lc-ctype=C.UTF-8"]
        initdb += ["--lc-messages=C", "-A", "trust", "-U", "oribi", "--no-sync"]
        subprocess.run(as_user([str(word) for word in initdb]), check=True, stdout=subprocess.DEVNULL, cwd="/")
        options = [word for name, value in self.options.items() for word in ("-c", f"{name}={value}")]
        server = [str(binaries() / "postgres"), "-D", str(data), "-k", str(self.folder), *options]
        self.log = open(self.folder / "log", "ab")
        self.process = subprocess.Popen(as_user(server), stdout=self.log, stderr=self.log, cwd="/")
        self.wait_until_ready()
        return self

    def wait_until_ready(self):
        for _ in range(600):
            try:
                self.connect().close()
                return
            except psycopg.OperationalError:
                if self.process.poll() is not None:
                    break
                time.sleep(0.05)
        text = (self.folder / "log").read_text()
        self.__exit__()
        raise RuntimeError(f"PostgreSQL did not start: {text}")

    def connect(self):
        return psycopg.connect(host=str(self.folder), user="oribi", dbname="postgres", autocommit=True)

    def __exit__(self, *_):
        if self.process.poll() is None:
            # `runuser` hands the signal on; SIGINT is PostgreSQL's fast shutdown.
            stop = [str(binaries() / "pg_ctl"), "-D", str(self.folder / "data"), "-m", "immediate", "stop"]
            subprocess.run(as_user(stop), check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/")
            self.process.wait(timeout=60)
        self.log.close()
        shutil.rmtree(self.folder, ignore_errors=True)
