# SPDX-License-Identifier: MIT
"""machines.py - machines that are network namespaces, for bench/group_machines.py and tests/vm/machines.py.

    machines.alone()                       # what is made from here on ends with this program
    with Machines(folder, image, 4, 400, 160) as machines:
        process = machines.start(0, ["hoist", ...])

A bridge in one more namespace joins the machines, by links that tc's tbf shapes in both directions.
Each machine has a copy of an image: a loop device of its own, whose reads a control group may limit.
All copies lie in one file.  The machines share one kernel, one clock and their processors.

Needs root.  skip() ends the program with 77 where this machine lacks something.
"""

import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import sys

PR_SET_PDEATHSIG = 1
CLONE_NEWNS = 0x00020000
CLONE_NEWPID = 0x20000000
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def call(*words, **more):
    """Runs a command.  Returns its output."""
    return subprocess.run(
        words, check=True, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **more
    ).stdout


def skip(why):
    print(f"skipped: {str(why).strip()}", flush=True)
    sys.exit(77)


def end(number, _):
    for other in SIGNALS:
        signal.signal(other, signal.SIG_IGN)
    sys.exit(128 + number)


def alone():
    """Goes on in a child, in namespaces of processes and mounts that end with it.

    However this program ends, also by SIGKILL, the kernel then ends the processes, unmounts the disks,
    frees their loop devices and removes the network namespaces, whose names lie in a tmpfs of its own.
    """
    if os.geteuid() != 0:
        skip("namespaces and disks need root")
    for tool in ("ip", "tc", "losetup", "mkfs.ext4"):
        if shutil.which(tool) is None:
            skip(f"no {tool} (Debian: iproute2, mount, e2fsprogs)")
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNS | CLONE_NEWPID) != 0:
        skip(f"no namespaces of processes and mounts: {os.strerror(ctypes.get_errno())}")
    child = os.fork()
    if child > 0:
        for number in SIGNALS:
            signal.signal(number, lambda number, _: os.kill(child, number))
        os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) & 255)
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    for number in SIGNALS:
        signal.signal(number, end)
    try:
        call("mount", "--make-rprivate", "/")
        call("mount", "-t", "proc", "proc", "/proc")
        os.makedirs("/run/netns", exist_ok=True)
        call("mount", "-t", "tmpfs", "tmpfs", "/run/netns")
    except (OSError, subprocess.CalledProcessError) as error:
        skip(getattr(error, "output", None) or error)


class Machines:
    """Namespaces, links of @mbit Mbit/s, and disks of @image that give @storage Mbit/s (None: no limit)."""

    def __init__(self, folder, image, n, mbit, storage=None):
        self.folder, self.image, self.n, self.mbit = folder, image, n, mbit
        self.storage = storage
        self.mark = f"hoist-{os.urandom(4).hex()}"
        self.disks = []  # device numbers
        self.group = None

    def space(self, k):
        return f"{self.mark}-{k}"

    def at(self, k):
        return f"10.77.0.{k + 1}"

    def hardware(self, k):
        return f"02:77:00:00:00:{k + 1:02x}"

    def file(self, k):
        return f"{self.folder}/disk{k}/model.safetensors"

    def __enter__(self):
        try:
            self.make_links()
            if self.storage is not None:
                self.make_group()
            for k in range(self.n):
                self.make_disk(k)
        except (OSError, subprocess.CalledProcessError) as error:
            self.__exit__()
            skip(getattr(error, "output", None) or error)
        except SystemExit:
            self.__exit__()
            raise
        return self

    def make_links(self):
        hub = self.space("hub")
        call("ip", "netns", "add", hub)
        call("ip", "-n", hub, "link", "add", "hub", "type", "bridge")
        call("ip", "-n", hub, "link", "set", "hub", "up")
        for k in range(self.n):
            space = self.space(k)
            call("ip", "netns", "add", space)
            call("ip", "-n", hub, "link", "add", f"v{k}", "type", "veth", "peer", "name", "eth0",
                 "address", self.hardware(k), "netns", space)
            call("ip", "-n", hub, "link", "set", f"v{k}", "master", "hub", "up")
            call("ip", "-n", space, "addr", "add", f"{self.at(k)}/24", "dev", "eth0")
            call("ip", "-n", space, "link", "set", "eth0", "up")
            call("ip", "-n", space, "link", "set", "lo", "up")
            for where, device in ((space, "eth0"), (hub, f"v{k}")):
                call("tc", "-n", where, "qdisc", "add", "dev", device, "root", "tbf",
                     "rate", f"{self.mbit}mbit", "burst", "128kb", "latency", "20ms")

    def make_group(self):
        self.v1 = os.path.exists("/sys/fs/cgroup/blkio/blkio.throttle.read_bps_device")
        parent = "/sys/fs/cgroup/blkio" if self.v1 else "/sys/fs/cgroup"
        group = f"{parent}/{self.mark}"
        os.mkdir(group)
        self.group = group
        if not self.v1:
            put(f"{parent}/cgroup.subtree_control", "+io")

    def make_disk(self, k):
        folder = f"{self.folder}/disk{k}"
        os.makedirs(folder, exist_ok=True)
        loop = call("losetup", "--read-only", "--show", "-f", self.image).strip()
        try:
            call("mount", "-t", "ext4", "-o", "ro,noload", loop, folder)
        finally:
            call("losetup", "-d", loop)  # once nothing is mounted
        device = os.stat(folder).st_dev
        self.disks.append(f"{os.major(device)}:{os.minor(device)}")
        if self.group is not None:
            rate = int(self.storage * 1e6 / 8)
            if self.v1:
                put(f"{self.group}/blkio.throttle.read_bps_device", f"{self.disks[k]} {rate}")
            else:
                put(f"{self.group}/io.max", f"{self.disks[k]} rbps={rate}")

    def __exit__(self, *_):
        for k in range(len(self.disks)):
            quietly("umount", f"{self.folder}/disk{k}")
        for k in [*range(self.n), "hub"]:
            quietly("ip", "netns", "del", self.space(k))
        if self.group is not None:
            with contextlib.suppress(OSError):
                os.rmdir(self.group)

    def start(self, k, words, shaped=True, **more):
        """Starts a process on a machine.  @shaped: its reads are limited, if the disks are."""

        def enter():
            put(f"{self.group}/cgroup.procs", "0")

        return subprocess.Popen(
            ["ip", "netns", "exec", self.space(k), *words], text=True,
            preexec_fn=enter if shaped and self.group is not None else None,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True, **more)

    def link(self, k, state):
        """Sets both ends of a machine's link "up" or "down"."""
        call("ip", "-n", self.space(k), "link", "set", "eth0", state)
        call("ip", "-n", self.space("hub"), "link", "set", f"v{k}", state)

    def part(self, a, b, apart=True):
        """From now on, what two machines send to each other is dropped, and nobody is told."""
        state = "on" if apart else "off"
        for k, other in ((a, b), (b, a)):
            call("ip", "-n", self.space("hub"), "link", "set", f"v{k}", "type", "bridge_slave", "isolated", state)
            # The machines know each other's hardware: one that had to ask would learn that nobody answers.
            call("ip", "-n", self.space(k), "neigh", "replace" if apart else "del", self.at(other),
                 "lladdr", self.hardware(other), "dev", "eth0", "nud", "permanent")

    def forget(self):
        """Takes the files out of the page cache."""
        for k in range(self.n):
            fd = os.open(self.file(k), os.O_RDONLY)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(fd)

    def carried(self, k):
        """Bytes that the machine's link has brought, and taken away, so far."""
        files = (f"/sys/class/net/eth0/statistics/{way}_bytes" for way in ("rx", "tx"))
        return [int(n) for n in call("ip", "netns", "exec", self.space(k), "cat", *files).split()]

    def read_bytes(self):
        """Bytes that the disks have given so far."""
        total = 0
        for disk in self.disks:
            with open(f"/sys/dev/block/{disk}/stat") as file:
                total += int(file.read().split()[2]) * 512
        return total


def make_image(mkcheckpoint, folder, size):
    """Makes a file system with a checkpoint of about that size in it.  Returns: it, and the bytes of the file."""
    call(mkcheckpoint, "--bytes", str(size), "--shards", "1", "--tensors", "4", "--equal",
         "--columns", "65536", f"{folder}/made")
    image = f"{folder}/image"
    size = os.path.getsize(f"{folder}/made/model.safetensors")
    with open(image, "w") as f:
        f.truncate((size + size // 16 + (32 << 20)) >> 20 << 20)
    call("mkfs.ext4", "-q", "-d", f"{folder}/made", image)
    shutil.rmtree(f"{folder}/made")
    return image, size


def put(path, text):
    with open(path, "w") as file:
        file.write(text)


def quietly(*words):
    subprocess.run(words, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def kill(process):
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def finish(processes, dead=(), seconds=300):
    """Waits.  Returns the outputs; a process that fails and is not in @dead ends the run."""
    outputs = []
    try:
        for k, process in enumerate(processes):
            outputs.append(process.communicate(timeout=seconds)[0])
            if process.returncode != 0 and k not in dead:
                raise RuntimeError(f"{process.args}: {process.returncode}: {outputs[-1][-2000:]}")
    finally:
        for process in processes:
            kill(process)
    return outputs
