# SPDX-License-Identifier: MIT
"""Loads a file as one process of a group, for test_group.py: a rank is a process.

    group_rank.py FILE OPTIONS [STREAM]

OPTIONS: a JSON object, the options of `hoist.load_all()`, or, with STREAM, of `hoist.load()`.  Prints a
line of JSON: the digests of the tensors, and the report's "group"; or the error.
"""

import hashlib
import json
import sys

import hoist


def main():
    path, options = sys.argv[1], json.loads(sys.argv[2])
    said = {}
    try:
        if len(sys.argv) > 3:
            with hoist.load(path, **options) as load:
                said["digests"] = {name: hashlib.sha256(buffer.tobytes()).hexdigest() for name, buffer in load}
                said["group"] = load.report().get("group")
        else:
            tensors = hoist.load_all(path, **options)
            said["digests"] = {name: hashlib.sha256(buffer.tobytes()).hexdigest()
                               for name, buffer in tensors.items()}
    except (hoist.Error, ValueError, OSError) as error:
        said = {"error": type(error).__name__, "text": str(error)}
    print("RANK " + json.dumps(said), flush=True)


main()
