#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Groups of four machines whose network or members fail half way.

A machine is a network namespace with a disk of its own and a link of 100 Mbit/s (bench/machines.py).
"Half way" is when the link has carried half of the bytes that it carries in an undisturbed load.
Bytes are compared by digests: refdigest's of the file, and vm/member's of the memory that the load
filled.  Upper bounds of time find hangs alone.  Needs root; exit: 0, 1, 77.
"""

import collections
import contextlib
import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback

SOURCE = os.environ["abs_top_srcdir"]
BUILD = os.environ["abs_top_builddir"]
sys.dont_write_bytecode = True
sys.path.insert(0, f"{SOURCE}/bench")
import machines as made  # noqa: E402

N = 4
LANES = 3  # tests at a time: members mostly wait for their links
MBIT = 100
BYTES = 48 << 20
HANGS_S = 120
TRIES = 10
ABSENT = "/absent/model.safetensors"
SECRET = "a secret of this test's"
NOBODY_HAS = "no member of the group \"network\" that is left has"
OTHER_SECRET = "another secret, of a stranger"


class Failed(Exception):
    pass


class Missed(Exception):
    """A pause of this machine kept the test from acting half way, or a member from waiting for another."""


def demand(holds, text):
    if not holds:
        raise Failed(text)


@dataclasses.dataclass
class Member:
    """One that has ended."""

    status: int
    output: str

    def digests(self):
        return re.findall(r"^[0-9a-f]{32}  .*$", self.output, re.M)

    def report(self):
        return json.loads(re.search(r"^\{.*\}$", self.output, re.M).group())

    def failure(self):
        found = re.search(r"^member: .*$", self.output, re.M)
        return found.group() if found else ""


class Group:
    """Members that load, the k-th on machine k."""

    def __init__(self, machines, size, n=N, files=range(N), timeout=60):
        self.machines, self.size, self.n = machines, size, n
        self.files, self.timeout = files, timeout
        self.name = f"tcp://{machines.at(0)}:7117/network"
        self.environment = {**os.environ, "UCX_TLS": "tcp", "HOIST_DEBUG": "load"}
        self.processes = {}
        self.ended = {}
        self.carried = {}

    def __enter__(self):
        self.machines.forget()
        self.read = self.machines.read_bytes()
        return self

    def __exit__(self, *_):
        for k, process in self.processes.items():
            made.kill(process)
            process.communicate()
            self.machines.link(k, "up")

    def run(self, k, words, secret=SECRET):
        return self.machines.start(k, words, env={**self.environment, "HOIST_GROUP_SECRET": secret})

    def start(self, *ranks, secret=SECRET):
        for k in ranks:
            path = self.machines.file(k) if k in self.files else ABSENT
            self.carried[k] = self.machines.carried(k)
            self.processes[k] = self.run(k, [f"{BUILD}/tests/vm/member", self.name, str(min(k, self.n - 1)),
                                             str(self.n), str(self.timeout), path], secret)

    def brought(self, k):
        """Bytes that the link of a member has brought since the member began."""
        return self.machines.carried(k)[0] - self.carried[k][0]

    def progress(self, k):
        """The part of its bytes that the link has brought or taken away: the more of both."""
        share = self.size * 3 // 4 if len(self.files) == N else self.size
        return max(now - then for now, then in zip(self.machines.carried(k), self.carried[k])) / share

    def end(self, *ranks):
        """Waits until these have ended."""
        for k in ranks:
            try:
                output = self.processes[k].communicate(timeout=HANGS_S)[0]
            except subprocess.TimeoutExpired:
                made.kill(self.processes[k])
                output = self.processes[k].communicate()[0]
                raise Failed(f"member {k} hangs\n{output}") from None
            self.ended[k] = Member(self.processes[k].returncode, output)

    def until_half(self, k):
        """Waits until the link of a member has carried half of its bytes."""
        while self.progress(k) < 0.5:
            for rank, process in self.processes.items():
                if process.poll() is not None:
                    self.end(rank)
                    demand(process.returncode == 0, f"member {rank} ended early\n{self.ended[rank].output}")
                    raise Missed
            time.sleep(0.01)

    def expect(self, k, right, digests, *names):
        """Member k has the right bytes, or says in a line why not.  @names: in its note, or in that line."""
        member = self.ended[k]
        what = f"member {k}, status {member.status}\n{member.output}"
        if right:
            demand(member.status == 0 and member.digests() == digests, f"not all bytes are right: {what}")
            demand(member.report()["damaged"] == 0, f"damage: {what}")
            lacking = [name for name in names if name not in member.report()["note"]]
            if lacking and member.report()["late"] > 0:
                raise Missed
        else:
            demand(member.status == 1, f"it did not fail: {what}")
            lacking = [name for name in names if name not in member.failure()]
        demand(not lacking, f"no word of {lacking}: {what}")


# --- what happens half way ---


def kill(group, k):
    group.processes[k].kill()


def cut(group, k):
    group.machines.link(k, "down")


def stop(group, k):
    group.processes[k].send_signal(signal.SIGSTOP)


def go_on(group, k):
    group.processes[k].send_signal(signal.SIGCONT)


@dataclasses.dataclass
class Row:
    name: str
    files: tuple  # members that have them
    strike: object = None  # what happens to the victim once its link has carried half
    victim: int = -1
    after: object = None  # once the others have ended
    fail: tuple = ()  # members that end without the bytes
    named: bool = False  # the others name the victim


ALL = (0, 1, 2, 3)
ROWS = (
    Row("one has the files, and is killed", (0,), kill, 0, fail=(1, 2, 3), named=True),
    Row("all have the files", ALL),
    Row("one is cut off", ALL, cut, 2, named=True),
    Row("one is stopped until the others have ended", ALL, stop, 2, go_on, named=True),
    Row("one is killed", ALL, kill, 2, named=True),
    Row("one has the files", (0,)),
    Row("one of three without files is cut off", (0,), cut, 2, fail=(2,)),
)


def run_row(row, machines, size, digests):
    said = ""
    with Group(machines, size, files=row.files) as group:
        group.start(*range(N))
        if row.strike is not None:
            group.until_half(row.victim)
            row.strike(group, row.victim)
            progress = group.progress(row.victim)
            if progress > 0.9:
                raise Missed
            said = f"struck when its link had carried {progress:.2f} of its bytes"
        others = [k for k in range(N) if k != row.victim]
        group.end(*others)
        if row.after is not None:
            demand(group.processes[row.victim].poll() is None, "the victim has ended")
            row.after(group, row.victim)
        if row.strike is not None:
            group.end(row.victim)
        for k in others if row.strike in (None, kill) else range(N):
            right = k not in row.fail
            names = [f"member at {machines.at(row.victim)}:"] if row.named and k != row.victim else []
            if not right:
                names.append(NOBODY_HAS)
            group.expect(k, right, digests, *names)
        return said or expect_once(group)


def expect_once(group):
    """Storage gave each byte once, and the links the rest."""
    size = group.size
    reports = [group.ended[k].report() for k in range(N)]
    if any(report["late"] > 0 or report["members"] != N for report in reports):
        raise Missed
    read = group.machines.read_bytes() - group.read
    said = sum(report["storage_bytes"] for report in reports)
    demand(size <= said <= size + size // 50, f"the members say that they read {said} bytes of {size}")
    demand(size <= read <= size + (4 << 20), f"the disks gave {read} bytes of {size}")
    for k, report in enumerate(reports):
        brought = group.brought(k)
        demand(size * 9 // 10 <= report["storage_bytes"] + report["received_bytes"], f"member {k}: {report}")
        demand(report["received_bytes"] <= brought, f"the link of {k} brought {brought} bytes: {report}")
    return f"read from storage {read / size:.3f} of the file"


# --- other networks ---


def stranger(machines, size, digests):
    """A process on another machine that does not know the secret is refused, and gets nothing."""
    with Group(machines, size, n=3, files=(0, 1, 2), timeout=600) as group:
        group.start(0, 1)
        group.start(3, secret=OTHER_SECRET)
        group.end(3)
        group.expect(3, False, digests, "secret")
        brought = group.brought(3)
        demand(brought < 256 << 10, f"the stranger's link brought {brought} bytes")
        looker = group.run(3, [f"{BUILD}/run", "hoist", "group", "status", group.name], OTHER_SECRET)
        text = looker.communicate(timeout=HANGS_S)[0]
        demand(looker.returncode == 1 and "secret" in text, f"hoist group status, status {looker.returncode}: {text}")
        group.start(2)
        group.end(0, 1, 2)
        for k in range(3):
            group.expect(k, True, digests)
        return f"the stranger's link brought {brought} bytes"


def swallowed(a, b):
    """What machines a and b send to each other is dropped: all end, and have the bytes."""

    def run(machines, size, digests):
        machines.part(a, b)
        try:
            with Group(machines, size, timeout=4) as group:
                group.start(*range(N))
                group.end(*range(N))
                for k in range(N):
                    group.expect(k, True, digests)
                return "; ".join(group.ended[k].report()["note"] or "whole" for k in range(N))
        finally:
            machines.part(a, b, False)

    return run


def attempt(name, do):
    """Does it until no pause has spoilt it.  Returns: has it passed?"""
    begun = time.monotonic()
    for _ in range(TRIES):
        try:
            print(f"ok: {name}: {do()}; {time.monotonic() - begun:.1f} s", flush=True)
            return True
        except Missed:
            print(f"    {name}: once more, as this machine paused", flush=True)
        except Exception as error:
            text = str(error) if isinstance(error, Failed) else traceback.format_exc()
            print(f"FAILED: {name}: {text}", flush=True)
            return False
    print(f"FAILED: {name}: none of {TRIES} runs was without a pause", flush=True)
    return False


def run_all(folder):
    """Does all, some at a time, each on machines of its own.  Returns: has each passed?"""
    image, size = made.make_image(f"{BUILD}/tests/mkcheckpoint", folder, BYTES)
    waiting = collections.deque(TESTS.items())
    passed = {}

    def lane(machines, digests):
        while waiting:
            name, do = waiting.popleft()
            passed[name] = attempt(name, lambda: do(machines, size, digests))

    with contextlib.ExitStack() as stack:
        sets = [stack.enter_context(made.Machines(f"{folder}/{i}", image, N, MBIT)) for i in range(LANES)]
        digests = made.call(f"{BUILD}/tests/refdigest", sets[0].file(0)).splitlines()
        lanes = [threading.Thread(target=lane, args=(machines, digests), daemon=True) for machines in sets]
        for thread in lanes:
            thread.start()
        for thread in lanes:
            thread.join()
    return [passed.get(name, False) for name in TESTS]


def main():
    doctor = subprocess.run([f"{BUILD}/run", "hoist", "doctor"], text=True, stdout=subprocess.PIPE).stdout
    if not re.search(r"^across machines  *yes", doctor, re.M):
        made.skip("this machine has no UCX")
    made.alone()
    with tempfile.TemporaryDirectory() as folder:
        passed = run_all(folder)
    quiet = sum(row.strike is None for row in ROWS)
    print(f"figure: network.groups {sum(passed)} groups of {N} machines, {len(passed) - quiet} of them in trouble")
    return 0 if all(passed) else 1


TESTS = {
    **{row.name: lambda *given, row=row: run_row(row, *given) for row in ROWS},
    "a stranger": stranger,
    "what goes to the door is swallowed": swallowed(0, 3),
    "what goes to another member is swallowed": swallowed(2, 3),
}

sys.exit(main())
