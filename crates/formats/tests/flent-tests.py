"""Prints the data sets of each test of flent's distribution: each test with `NAME=RUNNER`, by tabs, one test a line.
Streams of one name are one: `TCP upload::1..8=TCP_STREAM`.

    python3 flent-tests.py >flent-tests.txt     (with flent on PYTHONPATH)
"""

import glob
import os
import re

from flent import settings
from flent.build_info import VERSION
from flent.testenv import TEST_PATH



def folded(sets):
    all_sets = []
    for one in sets:
        stream = re.fullmatch(r"(.*::)(\d+)=(.*)", one)
        last = re.fullmatch(r"(.*::)1\.\.(\d+)=(.*)", all_sets[-1]) if all_sets else None
        if stream and stream[2] == "1":
            all_sets.append(f"{stream[1]}1..1={stream[3]}")
        elif stream and last and (stream[1], stream[3]) == (last[1], last[3]) and int(last[2]) + 1 == int(stream[2]):
            all_sets[-1] = f"{stream[1]}1..{stream[2]}={stream[3]}"
        else:
            all_sets.append(one)
    return all_sets


print(f"# flent {VERSION}")
for path in sorted(glob.glob(os.path.join(TEST_PATH, "*.conf"))):
    test = settings.new()
    test.HOSTS = ["host1", "host2", "host3", "host4"]
    for name, value in [("upload_streams", 2), ("download_streams", 2), ("bidir_streams", 2)]:
        test.TEST_PARAMETERS[name] = value
    name = os.path.basename(path)[: -len(".conf")]
    test.load_test(name, informational=True)
    sets = [f"{key}={value.get('test') or value['runner']}" for key, value in test.DATA_SETS.items()]
    print("\t".join([name, *folded(sets)]))
