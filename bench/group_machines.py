#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""group_machines.py BUILD - groups of several machines, beside peers in the same run.

Needs root.  BUILD is the build folder.  machines.py makes the machines: network namespaces, each with
a copy of the checkpoint on a disk that gives 0.4 of the link's rate.  UCX would see that machines are
one, and copy between processes: UCX_TLS=tcp.  A load's time is that from the start of the first
process to the end of the last.

    4 members, everything each    links of 400 Mbit/s
    the same, one is killed       by SIGKILL, half way; and: its link is cut
    8 members, an eighth each     links of 200 Mbit/s; rows (axis 0), columns (axis 1, 16 KiB of
                                  each row); beside one process that loads its eighth of the rows
    16 members, everything each   links of 100 Mbit/s
    2 machines of 4 members       everything each, hot, links of 400 Mbit/s
    2 members on one machine      unshaped, hot, beside processes that copy the same bytes through
                                  memory that they share (bench/group_copy.c)
    peers                         ucx_perftest, the same bytes over one link, in messages of 4 MiB, by
                                  ucp_get and by ucp_am_bw (package ucx-utils);
                                  OpenMPI (bench/group_mpi.c): rank 0 reads and MPI_Bcast; each
                                  reads a quarter and broadcasts it; rsync from one to the three others

Exit: 0, 1, 77 (this machine has no namespaces, tbf or blkio; the text says which).
"""

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
from machines import Machines, alone, call, finish, kill, make_image, put  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
MIB = 1 << 20
PORT = 7777
SIXTEEN = "16 members, everything each"
UCX_TESTS = ("ucp_get", "ucp_am_bw")  # one-sided; as hoist over tcp


class Bench:
    def __init__(self, args):
        self.args = args
        self.build = os.path.abspath(args.build)
        self.bytes = args.bytes
        self.figures = {}
        self.missing = {}
        self.port = PORT

    def note(self, name, value):
        self.figures.setdefault(name, []).append(value)
        print(f"    {name}: {value:.3f}", file=sys.stderr, flush=True)

    def lack(self, name, why):
        self.missing[name] = str(why)[-300:]
        print(f"    {name}: not measured: {why}", file=sys.stderr, flush=True)

    def hoist(self, door, n, k, path, *more):
        return [f"{self.build}/run", "hoist", "load", "--group", f"tcp://{door}:{self.port}/bench",
                "--rank", f"{k}/{n}", *more, path]

    def group(self, name, machines, slices=None, during=None, dead=(), paths=None):
        """Times a load by all machines, of their own copies, or of `paths`."""
        machines.forget()
        before = machines.read_bytes()
        self.port += 1
        environment = {**os.environ, "HOIST_GROUP_SECRET": "secret of the benchmark",
                       "UCX_TLS": "tcp", "HOIST_DEBUG": "load,io" if self.args.log else ""}
        begun = time.monotonic()
        processes = []
        for k in range(machines.n):
            more = ["--slice", slices.format(k)] if slices else []
            processes.append(machines.start(
                k, self.hoist(machines.at(0), machines.n, k, paths[k] if paths else machines.file(k), *more),
                env=environment))
        if during is not None:
            during(processes)
        outputs = finish(processes, dead)
        self.note(f"{name}, s", time.monotonic() - begun)
        self.note(f"{name}, read", (machines.read_bytes() - before) / self.bytes)
        if self.args.log:
            print("\n".join(outputs), file=sys.stderr)

    def four(self, machines):
        name = "4 members, everything each"
        self.group(name, machines)
        half = statistics.median(self.figures[f"{name}, s"]) / 2

        def end(processes):
            time.sleep(half)
            kill(processes[2])

        def cut(processes):
            time.sleep(half)
            call("ip", "-n", machines.space(2), "link", "set", "eth0", "down")
            finish(processes[:2] + processes[3:])
            kill(processes[2])
            call("ip", "-n", machines.space(2), "link", "set", "eth0", "up")

        self.group("one of 4 is killed half way", machines, during=end, dead=(2,))
        self.group("one of 4 is cut off half way", machines, during=cut, dead=(2,))

    def eight(self, machines):
        machines.forget()
        begun = time.monotonic()
        finish([machines.start(0, [f"{self.build}/run", "hoist", "load", "--slice", "*:0:0/8",
                                   machines.file(0)])])
        self.note("one process alone, an eighth of the rows, s", time.monotonic() - begun)
        self.group("8 members, an eighth of the rows each", machines, slices="*:0:{}/8")
        self.group("8 members, an eighth of the columns each", machines, slices="*:1:{}/8")

    def seed(self, machines):
        """One member has the files, in memory; the others have none."""
        with tempfile.TemporaryDirectory(dir="/dev/shm") as memory:
            path = shutil.copy(machines.file(0), memory)
            self.group("one of 8 has the files", machines,
                       paths=[path] + ["/absent/model.safetensors"] * (machines.n - 1))

    def ucx(self, machines, test):
        name = f"ucx_perftest {test}, the same bytes over one link, s"
        if shutil.which("ucx_perftest") is None:
            self.lack(name, "no ucx_perftest: package ucx-utils")
            return
        environment = {**os.environ, "UCX_TLS": "tcp"}
        size = 4 * MIB
        n = self.bytes // size
        self.port += 1
        port = ["-p", str(self.port)]  # the last one's may be taken for a minute
        server = machines.start(0, ["ucx_perftest", *port], env=environment)
        time.sleep(0.5)
        client = machines.start(1, ["ucx_perftest", *port, machines.at(0), "-t", test, "-s", str(size),
                                    "-n", str(n), "-w", "1", "-f"], env=environment)
        try:
            text = finish([client])[0]
        finally:
            kill(server)
        # Columns: messages, three latencies, two bandwidths of MB/s, two rates.
        values = [line.split() for line in text.splitlines()
                  if re.fullmatch(r"( *(\d[\d.]*|inf))+", line.rstrip())]
        if not values:
            raise RuntimeError(f"ucx_perftest printed no figures: {text}")
        self.note(name, self.bytes / (float(values[-1][-3]) * MIB))

    def mpi(self, machines, program, hosts):
        for name, way in (("MPI_Bcast of what rank 0 reads, s", "root"),
                          ("each reads a quarter, and MPI_Bcast, s", "all")):
            if program is None:
                self.lack(name, "no mpicc: packages openmpi-bin, libopenmpi-dev")
                continue
            machines.forget()
            words = ["mpirun", "--allow-run-as-root", "--mca", "plm_rsh_agent", hosts, "--mca", "plm",
                     "rsh", "--mca", "btl", "tcp,self", "--mca", "pml", "ob1", "--mca",
                     "btl_tcp_if_include", "eth0", "--mca", "oob_tcp_if_include", "eth0", "--bind-to",
                     "none", "--host", ",".join(machines.at(k) for k in range(machines.n)), program,
                     way, f"{machines.folder}/disk%d/model.safetensors"]
            text = finish([machines.start(0, words, env={**os.environ, "OMPI_MCA_orte_keep_fqdn_hostnames": "1"})])[0]
            self.note(name, float(re.search(r"seconds ([\d.]+)", text).group(1)))

    def rsync(self, machines):
        name = "rsync from one to the three others, s"
        if shutil.which("rsync") is None:
            self.lack(name, "no rsync")
            return
        machines.forget()
        settings = f"{machines.folder}/rsyncd.conf"
        put(settings, f"use chroot = no\nport = 8730\n[model]\npath = {machines.folder}/disk0\n")
        server = machines.start(0, ["rsync", "--daemon", "--no-detach", f"--config={settings}"])
        time.sleep(0.3)
        with tempfile.TemporaryDirectory(dir="/dev/shm") as memory:
            begun = time.monotonic()
            clients = [machines.start(k, ["rsync", "--whole-file", "--inplace",
                                          f"rsync://{machines.at(0)}:8730/model/model.safetensors",
                                          f"{memory}/{k}"]) for k in range(1, machines.n)]
            try:
                finish(clients)
                self.note(name, time.monotonic() - begun)
            finally:
                kill(server)

    @staticmethod
    def warm(path):
        with open(path, "rb") as file:
            while file.read(16 * MIB):
                pass

    def crowd(self, machines):
        """Four members on each of two machines, from the page cache."""
        name = "2 machines of 4 members, everything each"
        for k in range(2):
            self.warm(machines.file(k))
        self.port += 1
        environment = {**os.environ, "HOIST_GROUP_SECRET": "secret of the benchmark", "UCX_TLS": "tcp"}
        before = [machines.carried(k)[0] for k in range(2)]
        begun = time.monotonic()
        finish([machines.start(k // 4, self.hoist(machines.at(0), 8, k, machines.file(k // 4)),
                               shaped=False, env=environment) for k in range(8)])
        self.note(f"{name}, s", time.monotonic() - begun)
        self.note(f"{name}, of the file over a link",
                  max(machines.carried(k)[0] - before[k] for k in range(2)) / self.bytes)

    def two(self, machines, copier):
        """Two members of one machine, without limits, from the page cache."""
        self.warm(machines.file(0))
        self.port += 1
        environment = {**os.environ, "HOIST_GROUP_SECRET": "secret of the benchmark"}
        environment.pop("UCX_TLS", None)
        processes = [machines.start(0, [*self.hoist("127.0.0.1", 2, k, machines.file(0)), "--json"],
                                    shaped=False, env=environment) for k in range(2)]
        loads = [json.loads(text) for text in finish(processes)]
        self.note("2 members of one machine, hot, s", max(load["seconds"] for load in loads))
        text = finish([machines.start(0, [copier, machines.file(0)], shaped=False)])[0]
        self.note("2 processes that copy through shared memory, s", float(text.split()[-1]))


def made(folder, compiler, source):
    """Returns: a program of one file of this folder; None without the compiler."""
    if shutil.which(compiler) is None:
        return None
    program = os.path.join(folder, source.removesuffix(".c"))
    call(compiler, "-O2", "-o", program, os.path.join(HERE, source))
    return program


def make_agent(machines, folder):
    """A program that mpirun calls in the place of ssh."""
    path = f"{folder}/agent"
    put(path, f"""#!/bin/sh
host=$1
shift
exec ip netns exec {machines.mark}-$((${{host##*.}} - 1)) unshare -u sh -c "hostname $host; $*"
""")
    os.chmod(path, 0o755)
    return path


def median(bench, name):
    return statistics.median(bench.figures[name]) if name in bench.figures else None


def judge(bench):
    """Rows: work, value, the unit, bar, met."""
    rows = []
    s = bench.bytes

    def row(work, value, bar, more=False):
        if value is not None:
            rows.append({"work": work, "value": value, "bar": bar,
                         "met": value >= bar if more else value <= bar, "more": more})

    def ratio(a, b):
        return None if a is None or b is None else a / b

    four = median(bench, "4 members, everything each, s")
    link, storage = 400e6 / 8, 0.4 * 400e6 / 8
    row("4 members, everything each: read from storage, of the file",
        median(bench, "4 members, everything each, read"), 1.01)
    row("4 members, everything each: time to max(S/4 at storage's rate, S at the link's)",
        ratio(four, max(s / 4 / storage, s / link)), 1.15)
    sixteen = median(bench, f"{SIXTEEN}, s")
    row(f"{SIXTEEN}: read from storage, of the file", median(bench, f"{SIXTEEN}, read"), 1.01)
    row(f"{SIXTEEN}: time to max(S/16 at storage's rate, S at the link's)",
        ratio(sixteen, s / (100e6 / 8)), 1.15)
    for part in ("rows", "columns"):
        name = f"8 members, an eighth of the {part} each"
        row(f"{name}: read, of the file", median(bench, f"{name}, read"), 1.01)
        row(f"{name}: time to one process alone",
            ratio(median(bench, f"{name}, s"),
                  median(bench, "one process alone, an eighth of the rows, s")), 1.1)
    row("one of 8 has the files: time to S at the link's rate",
        ratio(median(bench, "one of 8 has the files, s"), s / (200e6 / 8)), 1.3)
    for name, detection in (("killed", 2), ("cut off", 5)):
        value = median(bench, f"one of 4 is {name} half way, s")
        if value is not None and four is not None:
            row(f"one of 4 is {name} half way: seconds after the fault-free end", value - four,
                2 + detection)
    name = "2 machines of 4 members, everything each"
    row(f"{name}: bytes over a link, of the file",
        median(bench, f"{name}, of the file over a link"), 0.55)
    row("2 members of one machine: rate to processes that copy",
        ratio(median(bench, "2 processes that copy through shared memory, s"),
              median(bench, "2 members of one machine, hot, s")), 0.8, True)
    # A member receives three quarters of the bytes.
    for test in UCX_TESTS:
        row(f"4 members, everything each: rate of receiving to ucx_perftest {test}'s over one link",
            ratio(median(bench, f"ucx_perftest {test}, the same bytes over one link, s"),
                  None if four is None else four / 0.75), 0.9, True)
    for peer in ("MPI_Bcast of what rank 0 reads, s", "each reads a quarter, and MPI_Bcast, s",
                 "rsync from one to the three others, s"):
        row(f"4 members, everything each: time to {peer.removesuffix(', s')}",
            ratio(four, median(bench, peer)), 1.0)
    return rows


def size_of(text):
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    return int(text[:-1]) * units[text[-1]] if text[-1] in units else int(text)


def measure(bench, folder):
    args = bench.args
    image, bench.bytes = make_image(f"{bench.build}/tests/mkcheckpoint", folder, args.bytes)
    copier = made(folder, "cc", "group_copy.c")
    mpi = made(folder, "mpicc", "group_mpi.c")

    def wanted(name):
        return args.only is None or name in args.only.split(",")

    for turn in range(args.runs):
        print(f"run {turn + 1} of {args.runs}", file=sys.stderr, flush=True)
        with Machines(folder, image, 4, 400, 160) as machines:
            agent = make_agent(machines, folder)
            for name, do in (("four", lambda: bench.four(machines)),
                             *(("ucx", lambda test=test: bench.ucx(machines, test))
                               for test in UCX_TESTS),
                             ("mpi", lambda: bench.mpi(machines, mpi, agent)),
                             ("rsync", lambda: bench.rsync(machines)),
                             ("crowd", lambda: bench.crowd(machines)),
                             ("two", lambda: bench.two(machines, copier))):
                attempt(bench, name, do, wanted)
        with Machines(folder, image, 8, 200, 80) as machines:
            attempt(bench, "eight", lambda: bench.eight(machines), wanted)
            attempt(bench, "seed", lambda: bench.seed(machines), wanted)
        with Machines(folder, image, 16, 100, 40) as machines:
            attempt(bench, "sixteen", lambda: bench.group(SIXTEEN, machines), wanted)


def attempt(bench, name, do, wanted):
    if not wanted(name):
        return
    try:
        do()
    except (RuntimeError, subprocess.SubprocessError, ValueError, AttributeError) as error:
        bench.lack(name, error)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build")
    parser.add_argument("--bytes", type=size_of, default=512 * MIB)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--only", help="four,eight,seed,sixteen,crowd,two,ucx,mpi,rsync")
    parser.add_argument("--folder", help="where files of twice the bytes fit")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--log", action="store_true", help="show what the members log")
    args = parser.parse_args()
    alone()
    bench = Bench(args)
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        measure(bench, folder)
    rows = judge(bench)
    if args.json:
        print(json.dumps({"bench": "group-machines", "bytes": bench.bytes, "runs": args.runs,
                          "figures": bench.figures, "rows": rows, "missing": bench.missing}))
        return
    for name, values in bench.figures.items():
        print(f"{name:56} {statistics.median(values):8.3f}  ({min(values):.3f} to {max(values):.3f})")
    for row in rows:
        print(f"{row['work']:88} {row['value']:7.3f}  {'at least' if row['more'] else 'at most'} "
              f"{row['bar']:g}: {'met' if row['met'] else 'NOT MET'}")
    for name, why in bench.missing.items():
        print(f"not measured: {name}: {why}")


if __name__ == "__main__":
    main()
