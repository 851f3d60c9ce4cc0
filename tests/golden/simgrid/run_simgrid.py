"""Play cases.json.gz in SimGrid 3.32 and write times.json.gz.

Run with the Python that has SimGrid (Debian's own): ``/usr/bin/python3 run_simgrid.py``.
Model: CM02 with every correction factor off, no cross traffic, no TCP window, tight precision.
SimGrid gives flows shares in inverse proportion to their latency; the test does the same.
"""

import gzip
import json
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
SETTINGS = [
    "network/model:CM02", "network/crosstraffic:0", "network/TCP-gamma:0",
    "network/latency-factor:1", "network/bandwidth-factor:1", "network/weight-S:0",
    "surf/precision:1e-12", "network/optim:Full", "maxmin/precision:1e-8",
]  # fmt: skip


def play(case):
    from simgrid import Actor, Comm, Engine, LinkInRoute, NetZone, this_actor

    engine = Engine(["run", *[f"--cfg={s}" for s in SETTINGS], "--log=root.thres:critical"])
    zone = NetZone.create_full_zone("zone")
    used = sorted(set(case["source"]) | set(case["target"]))
    hosts = {c: zone.create_host(f"h{c}", 1e9).seal() for c in used}
    links = []
    for k, capacity in enumerate(case["capacity"]):
        link = zone.create_link(f"l{k}", capacity)
        link.set_latency(case["latency"][k])
        links.append(link.seal())
    for s, t, path in zip(case["source"], case["target"], case["paths"], strict=True):
        route = [LinkInRoute(links[k]) for k in path]
        zone.add_route(hosts[s].netpoint, hosts[t].netpoint, None, None, route, False)
    zone.seal()
    ends = [0.0] * len(case["source"])

    def flow(f):
        if case["start"][f] > 0:
            this_actor.sleep_for(case["start"][f])
        Comm.sendto(hosts[case["source"][f]], hosts[case["target"][f]], int(case["bytes"][f]))
        ends[f] = Engine.clock

    for f in range(len(ends)):
        Actor.create(f"f{f}", hosts[case["source"][f]], flow, f)
    engine.run()
    return ends


if __name__ == "__main__":
    cases = json.loads(gzip.decompress((HERE / "cases.json.gz").read_bytes()))
    if len(sys.argv) > 1:  # SimGrid is one engine a process
        print(json.dumps(play(cases[int(sys.argv[1])])))
        sys.exit()
    times = {}
    for number, case in enumerate(cases):
        out = subprocess.run(
            [sys.executable, __file__, str(number)], check=True, capture_output=True, text=True
        ).stdout
        times[case["name"]] = json.loads(out.strip().splitlines()[-1])
        print(case["name"], max(times[case["name"]]))
    data = json.dumps({"simgrid": "3.32", "settings": SETTINGS, "times": times}).encode()
    (HERE / "times.json.gz").write_bytes(gzip.compress(data, 9, mtime=0))
