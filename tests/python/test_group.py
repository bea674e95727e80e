# SPDX-License-Identifier: MIT
"""Groups of several machines: processes load together over loopback; the environment of launchers."""

import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

import hoist
from hoist import launcher
from hoist.options import Options
import files

MODEL = {**{f"t{number}": ("U8", (1 << 20,)) for number in range(12)}, "odd": ("F32", (7, 1001)),
         "empty": ("F32", (0, 3))}
HERE = os.path.dirname(os.path.abspath(__file__))
HOST = f"127.78.{os.getpid() // 250 % 250 + 1}.{os.getpid() % 250 + 1}"  # an address of this test's own
VARIABLES = ("RANK", "WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "SLURM_PROCID", "SLURM_NTASKS",
             "SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "MASTER_ADDR", "HOIST_GROUP_PORT", "HOIST_GROUP_SECRET",
             "HOIST_GROUP_SECRET_FILE")


def free_port():
    """A port of HOST's that nobody listens at."""
    with socket.socket() as one:
        one.bind((HOST, 0))
        return one.getsockname()[1]


def environment(**variables):
    """This process's, without any launcher, and with these."""
    return {**{name: value for name, value in os.environ.items() if name not in VARIABLES}, **variables}


class Ranks(files.WithModel):
    model = MODEL
    secret = "a secret of this test's"

    def start(self, options, *words, path=None, **variables):
        return subprocess.Popen([sys.executable, os.path.join(HERE, "group_rank.py"), path or self.path,
                                 json.dumps(options), *words], stdout=subprocess.PIPE, text=True,
                                env=environment(**variables))

    def said(self, process):
        """What a rank has said."""
        lines = [line for line in process.communicate()[0].splitlines() if line.startswith("RANK ")]
        self.assertEqual((process.returncode, len(lines)), (0, 1))
        return json.loads(lines[0][5:])

    @staticmethod
    def await_door(port):
        while True:
            try:
                socket.create_connection((HOST, port)).close()
                return
            except ConnectionRefusedError:
                time.sleep(0.02)

    def check(self, said):
        self.assertEqual(said.get("digests"), {name: hashlib.sha256(data).hexdigest()
                                               for name, data in self.bytes.items()}, said)

    @unittest.skipUnless(files.has_ucx(), "no UCX")
    def test_each_byte_once(self):
        for _ in range(10):  # a rank that is late reads for itself: such a run is made once more
            options = {"group": f"tcp://{HOST}:{free_port()}/once", "group_secret": self.secret}
            ranks = [self.start({**options, "rank": f"{number}/3"}, "stream") for number in range(3)]
            said = [self.said(process) for process in ranks]
            for one in said:
                self.check(one)
            groups = [one["group"] for one in said]
            if all(group["members"] == 3 and group["late"] == 0 for group in groups):
                break
        else:
            self.fail(f"no run of ten was without a rank that was late: {groups}")
        read = sum(group["storage_bytes"] for group in groups)
        n_bytes = sum(map(len, self.bytes.values()))
        self.assertTrue(n_bytes <= read <= 1.02 * n_bytes, (read, n_bytes))
        self.assertGreaterEqual(sum(group["received_bytes"] for group in groups), 2 * n_bytes)
        self.assertEqual({(group["note"], group["damaged"], group["damage"]) for group in groups}, {("", 0, "")})
        self.assertTrue(all(group["way"] for group in groups), groups)

    @unittest.skipUnless(files.has_ucx(), "no UCX")
    def test_launcher(self):
        port = str(free_port())
        ranks = [self.start({"group": "tcp:///torchrun"}, RANK=str(number), WORLD_SIZE="2", MASTER_ADDR=HOST,
                            HOIST_GROUP_PORT=port, HOIST_GROUP_SECRET=self.secret) for number in range(2)]
        for process in ranks:
            self.check(self.said(process))

    @unittest.skipUnless(files.has_ucx(), "no UCX")
    def test_without_files(self):
        """A rank without the files has all bytes from the one that has them."""
        folder = tempfile.mkdtemp()
        self.addCleanup(os.rmdir, folder)
        options = {"group": f"dir:{folder}/none", "group_secret": self.secret, "group_timeout": 600}
        absent = self.start({**options, "rank": "1/2"}, "stream", path=self.path + ".absent")
        whole = self.start({**options, "rank": "0/2"}, "stream")
        said = [self.said(process) for process in (whole, absent)]
        for one in said:
            self.check(one)
        self.assertEqual(said[1]["group"]["storage_bytes"], 0)
        self.assertGreaterEqual(said[1]["group"]["received_bytes"], sum(map(len, self.bytes.values())))

    def test_nobody_shows(self):
        """Without the files, and without another rank: an error once the timeout is over."""
        group = f"tcp://{HOST}:{free_port()}/none"
        with self.assertRaisesRegex(hoist.Error, "is not on this machine"):
            hoist.open(self.path + ".absent", group=group, group_secret=self.secret, group_timeout=0.3)
        with hoist.open(self.path, group=group, group_secret=self.secret) as checkpoint:
            self.assertEqual(set(checkpoint), set(MODEL))

    def test_interrupt(self):
        """Ctrl-C ends the wait for a rank that shows the checkpoint."""
        code = ("import signal\nimport hoist\n"
                "signal.signal(signal.SIGINT, signal.default_int_handler)  # the test's may be ignored\n"
                f"print('opens', flush=True)\nhoist.open('/absent', group='tcp://{HOST}:{free_port()}/none', "
                f"group_secret='{'s' * 16}', group_timeout=3600)")
        with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              env=environment()) as process:
            process.stdout.readline()
            time.sleep(0.2)
            process.send_signal(signal.SIGINT)
            self.assertIn("KeyboardInterrupt", process.communicate()[1])

    @unittest.skipUnless(files.has_ucx(), "no UCX")
    def test_secret(self):
        """One of two ranks that have other secrets is refused; the other reads for itself."""
        port = free_port()
        group = f"tcp://{HOST}:{port}/secret"
        waits = self.start({"group": group, "rank": "0/2", "group_timeout": 600, "group_secret": self.secret})
        try:
            self.await_door(port)  # the one that is there first is the door, and sends the other away
            refused = self.said(self.start({"group": group, "rank": "1/2", "group_timeout": 600,
                                            "group_secret": self.secret[::-1]}))
        finally:
            waits.kill()
            waits.communicate()
        self.assertEqual(refused["error"], "AccessError")
        self.assertIn("secret", refused["text"])

    @unittest.skipUnless(files.has_ucx(), "no UCX")
    def test_look(self):
        """A rank that waits for another is seen, by those that know the secret and the group."""
        port = free_port()
        group = f"tcp://{HOST}:{port}/look"
        waits = self.start({"group": group, "rank": "0/2", "group_timeout": 600, "group_secret": self.secret})
        try:
            self.await_door(port)
            member, = hoist.group_look(group, group_secret=self.secret, group_timeout=60)
            self.assertRaises(hoist.errors.AccessError, hoist.group_look, group, group_secret=self.secret[::-1])
            self.assertRaisesRegex(ValueError, 'is the group "look"', hoist.group_look, group + "2",
                                   group_secret=self.secret)
        finally:
            waits.kill()
            waits.communicate()
        self.assertEqual((member.address, member.has_files, member.begun), (f"{HOST}:{port}", True, False))
        self.assertEqual((member.rank, member.n_ranks), (0, 2))
        self.assertGreaterEqual(member.bytes, sum(map(len, self.bytes.values())))
        self.assertEqual((member.storage_bytes, member.received_bytes, member.sent_bytes), (0, 0, 0))
        self.assertRaises(hoist.Error, hoist.group_look, group, group_secret=self.secret, group_timeout=1)
        self.assertRaises(hoist.Error, hoist.group_look, "shm:look")
        self.assertRaises(TypeError, hoist.group_look, 7)

    def test_look_interrupt(self):
        """A look at a peer that says nothing is interrupted.

        The SIGINT comes as soon as the peer has accepted: hoist gives such a peer up after 2 s.
        """
        with socket.socket() as deaf:
            deaf.bind((HOST, 0))
            deaf.listen()
            taken = []
            files.interrupted(self, lambda: hoist.group_look(f"tcp://{HOST}:{deaf.getsockname()[1]}/look",
                                                             group_secret=self.secret, group_timeout=600),
                              until=lambda: taken.append(deaf.accept()))
            taken[0][0].close()

    def test_alone(self):
        """A load without a group of several machines has no such report."""
        with hoist.load(self.path) as load:
            load.wait()
            self.assertNotIn("group", load.report())


class Launchers(unittest.TestCase):
    """The variables of launchers, as doc/group.md has them."""

    def setUp(self):
        kept = dict(os.environ)
        self.addCleanup(lambda: (os.environ.clear(), os.environ.update(kept)))
        for name in VARIABLES:
            os.environ.pop(name, None)

    def test_rank(self):
        self.assertEqual(launcher.rank(), (0, 0))
        os.environ.update(SLURM_PROCID="3", SLURM_NTASKS="8")
        self.assertEqual(launcher.rank(), (3, 8))
        os.environ.update(OMPI_COMM_WORLD_RANK="2", OMPI_COMM_WORLD_SIZE="4")
        self.assertEqual(launcher.rank(), (2, 4))
        os.environ.update(RANK="1", WORLD_SIZE="2")
        self.assertEqual(launcher.rank(), (1, 2))
        self.assertEqual(Options(group="tcp://a:1/b").given["group"], ("tcp://a:1/b", 1, 2, 0, None))
        self.assertEqual(Options(group="tcp://a:1/b", rank="3/4").given["group"], ("tcp://a:1/b", 3, 4, 0, None))
        self.assertEqual(Options(group="dir:/a/b").given["group"], ("dir:/a/b", 1, 2, 0, None))
        for rank in ("2", "-1", "x", "1.0"):
            os.environ["RANK"] = rank
            self.assertRaisesRegex(ValueError, f"RANK={rank} and WORLD_SIZE=2", launcher.rank)

    def test_name(self):
        self.assertEqual(launcher.name("tcp://a:1/b"), "tcp://a:1/b")
        self.assertEqual(launcher.name("shm:b"), "shm:b")
        self.assertRaisesRegex(ValueError, "MASTER_ADDR", launcher.name, "tcp:///b")
        for nodes, host in (("a", "a"), ("a,b", "a"), ("n[003-007,12],g1", "n003"), ("r[1,2]n[08-9]x,b", "r1n08x")):
            os.environ["SLURM_JOB_NODELIST"] = nodes
            self.assertEqual(launcher.name("tcp:///b"), f"tcp://{host}:7117/b")
        os.environ["SLURM_STEP_NODELIST"] = "s[7-8]"
        self.assertEqual(launcher.name("tcp:///b"), "tcp://s7:7117/b")
        os.environ.update(MASTER_ADDR="fd00::1", HOIST_GROUP_PORT="9")
        self.assertEqual(launcher.name("tcp:///b"), "tcp://[fd00::1]:9/b")
        for port in ("0", "65536", "x"):
            os.environ["HOIST_GROUP_PORT"] = port
            self.assertRaisesRegex(ValueError, f"HOIST_GROUP_PORT={port}", launcher.name, "tcp:///b")

    def test_refused(self):
        for wrong in ({"group": "shm:a"}, {"rank": "0/2"}, {"group_secret": "x" * 16},
                      {"group": "shm:a", "rank": "0/2", "group_secret": "x" * 16}):
            self.assertRaises(ValueError, Options, **wrong)
        self.assertRaises(TypeError, Options, group=7)


if __name__ == "__main__":
    unittest.main()
