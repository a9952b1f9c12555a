"""Runs programs of others between two namespaces, good and broken, and compares what latput reads of their outputs
with what these files read of them. Arguments: the binary of latput, an empty folder, the reader of nmstate's YAML,
and the folder of programs of other versions of Debian. The last line counts the cases."""

import sys

# They add their cases.
import services
import traffic
from stage import LATPUT, NMSTATE, absent, call, case, make, remove, runs

# Values that nmstate may have a word for, with the property of the profile that it makes of them.
NMSTATE_KNOBS = {
    "mtu=9000": "mtu=9000",
    "rx-ring=512": "ring-rx=512",
    "tx-ring=64": "ring-tx=64",
    "rx-mini-ring=8": "ring-rx-mini=8",
    "rx-jumbo-ring=16": "ring-rx-jumbo=16",
    "pause-autoneg=on": "pause-autoneg=true",
    "pause-rx=on": "pause-rx=true",
    "pause-tx=off": "pause-tx=false",
    "adaptive-rx=off": "coalesce-adaptive-rx=0",
    "adaptive-tx=on": "coalesce-adaptive-tx=1",
    "rx-checksum=off": "feature-rx=false",
    "sg=on": "feature-sg=true",
    "gro=off": "feature-gro=false",
    "gso=on": "feature-gso=true",
    "tso=off": "feature-tso=false",
    "lro=off": "feature-lro=false",
    "rx-gro-hw=on": "feature-rx-gro-hw=true",
    "rx-gro-list=on": "feature-rx-gro-list=true",
    "rx-udp-gro-forwarding=on": "feature-rx-udp-gro-forwarding=true",
    "tx-udp-segmentation=off": "feature-tx-udp-segmentation=false",
    "rx-hashing=on": "feature-rxhash=true",
    "rx-ntuple=on": "feature-ntuple=true",
    "rx-vlan=off": "feature-rxvlan=false",
    "tx-vlan=off": "feature-txvlan=false",
    "tx-nocache-copy=on": "feature-tx-nocache-copy=true",
    "stats-block-usecs=1000us": "coalesce-stats-block-usecs=1000",
    "sample-interval=2s": "coalesce-sample-interval=2",
    "pkt-rate-low=100": "coalesce-pkt-rate-low=100",
    "pkt-rate-high=900": "coalesce-pkt-rate-high=900",
}
for side in ["rx", "tx"]:
    for end in ["", "-irq", "-low", "-high"]:
        NMSTATE_KNOBS[f"{side}-usecs{end}=50us"] = f"coalesce-{side}-usecs{end}=50"
        NMSTATE_KNOBS[f"{side}-frames{end}=5"] = f"coalesce-{side}-frames{end}=5"


def nmstate_of(kind, *knobs):
    """What nmstate makes of an export, and what latput says is not in it."""
    words = ["export-settings", "nic7", *knobs, "--kind", kind, "--format", "nmstate"]
    done = call(LATPUT, *words)
    return call(NMSTATE, input=done.stdout, check=False), done.stderr


@case()
def nmstate_reads_each_knob():
    # The direction of pause frames counts beside their negotiation only.
    beside = {"pause-rx=on": ["pause-autoneg=off"], "pause-tx=off": ["pause-autoneg=off"]}
    written = 0
    for knob, wanted in NMSTATE_KNOBS.items():
        read, said = nmstate_of("ethernet", knob, *beside.get(knob, []))
        assert read.returncode == 0 and "nic7: ethernet" in read.stdout or "not in it" in said, (knob, read)
        is_written = f"not in it: {knob.split('=')[0]}=" not in said
        assert (wanted in read.stdout.splitlines()) == is_written, f"{knob}: {read.stdout}"
        written += is_written
    assert written >= 35, written
    everything, _ = nmstate_of("ethernet", *NMSTATE_KNOBS)
    assert everything.returncode == 0, everything


@case()
def nmstate_reads_each_type():
    types = {"bond": "bond", "bridge": "linux-bridge", "vlan": "vlan", "vrf": "vrf", "vxlan": "vxlan", "veth": "veth"}
    types |= {"macvlan": "mac-vlan", "macvtap": "mac-vtap", "dummy": "dummy", "loopback": "loopback"}
    for kind, name in types.items():
        read, _ = nmstate_of(kind, "mtu=1400", "gro=off")
        assert f"nic7: {name}" in read.stdout.splitlines(), read
        # It does not make what is not there: those need a mode or a table.
        assert read.returncode == 0 or "mandatory for new" in read.stderr or "new VRF" in read.stderr, read


def main():
    count = failed = 0
    try:
        make()
        for run, name in runs():
            count += 1
            try:
                run()
                print(f"ok: {name}", flush=True)
            except Exception as problem:
                failed += 1
                print(f"FAILED: {name}: {type(problem).__name__}: {problem}", flush=True)
    finally:
        remove()
    for program in absent():
        print(f"skipped: {program} is not there")
    print(f"{count} cases, {failed} failed")
    return 1 if failed else 0


sys.exit(main())
