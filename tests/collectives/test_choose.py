"""Times: closed forms, bounds from separate code, folded stages, the chooser, the plan's term."""

from __future__ import annotations

from collections import defaultdict, deque

import numpy as np
import pytest
from fabric_samples import (
    CLOS,
    DGX,
    ETHERNET,
    FOLDING,
    HCCS,
    MESH_2D,
    OPTICAL,
    PLANES,
    TORUS,
    fabric,
    level,
    random_faults,
)

from lightloom.collectives import schedule as sch
from lightloom.collectives.background import steady_flows
from lightloom.collectives.bound import lower_bound
from lightloom.collectives.choose import candidates, collective, make
from lightloom.collectives.group import make_group
from lightloom.collectives.hints import hccl_algo
from lightloom.collectives.simplex import share_out
from lightloom.collectives.stage import Player, Software, Stage, algorithms, stand_ins
from lightloom.core.catalog import load_cluster
from lightloom.core.errors import FabricError, InfeasibleError, InputError
from lightloom.core.fabric import Fabric
from lightloom.fabric.cut import egress, unit_sizes
from lightloom.fabric.faults import break_links
from lightloom.fabric.network import Network, build

ALPHA, BETA = 2e-6, 50e9
SWITCH = fabric(level("net", "switch", [16], BETA, latency=ALPHA))


def player(machine: Fabric, **group: int) -> Player:
    return Player(build(machine), make_group(machine, **group))


@pytest.mark.parametrize("size", [1e3, 1e6, 1e9])
@pytest.mark.parametrize("n", [2, 8, 16])
def test_alpha_beta_closed_forms(size: float, n: int) -> None:
    p = player(SWITCH, cards=n)
    wire = 2 * (n - 1) / n * size / BETA
    forms = {"ring": 2 * (n - 1) * ALPHA + wire, "direct": 2 * ALPHA + wire}
    if n > 2:
        forms["halving-doubling"] = 2 * np.log2(n) * ALPHA + wire
    for name, seconds in forms.items():
        got = sch.seconds(p, sch.flat(p, "all-reduce", name), size)
        assert got == pytest.approx(seconds, rel=1e-3)
    exchange = collective(p, "all-to-all", size, "direct").seconds
    assert exchange == pytest.approx(ALPHA + (n - 1) / n * size / BETA, rel=1e-3)


@pytest.mark.parametrize("name", FOLDING)
def test_folded_stages_equal_unfolded(name: str) -> None:
    machine = FOLDING[name]
    compared = 0
    for seed in range(6):
        net = build(machine)
        try:
            net = break_links(net, random_faults(net, np.random.default_rng(seed), seed))
            group = make_group(machine)
            folded, listed = Player(net, group), Player(net, group, fold=False)
            for axis in group.axes:
                for algorithm, phases in algorithms(axis).items():
                    stage = Stage(axis, algorithm, tuple(phases), 1.0)
                    a, b = folded.seconds(stage, 1e8), listed.seconds(stage, 1e8)
                    np.testing.assert_allclose(a, b, rtol=1e-9)
                    compared += 1
        except FabricError:
            continue
    assert compared


@pytest.mark.parametrize("algorithm", ["ring", "tree", "halving-doubling", "swing"])
def test_flat_algorithms_fold_by_refinement(algorithm: str) -> None:
    net, group = build(OPTICAL), make_group(OPTICAL)
    times = []
    for fold in (True, False):
        p = Player(net, group, fold=fold)
        times.append(sch.seconds(p, make(p, "all-reduce", algorithm, 2**24), 2**24))
    assert times[0] == pytest.approx(times[1], rel=1e-9)


def max_flow(net: Network, sources: set[str], sinks: set[str]) -> float:
    """Edmonds-Karp on the listed graph; knows nothing of tiers."""
    room: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    links = np.arange(net.links)
    for link, capacity in zip(links.tolist(), net.capacity(links).tolist(), strict=True):
        tail, head = net.ends(link)
        if tail != head:
            room[tail][head] += capacity
    for node in sources:
        room["s"][node] = 1e18
    for node in sinks:
        room[node]["t"] = 1e18
    total = 0.0
    while True:
        before: dict[str, str] = {"s": ""}
        queue = deque(["s"])
        while queue and "t" not in before:
            node = queue.popleft()
            for peer, left in room[node].items():
                if left > 1 and peer not in before:
                    before[peer] = node
                    queue.append(peer)
        if "t" not in before:
            return total
        path, node = [], "t"
        while node != "s":
            path.append((before[node], node))
            node = before[node]
        push = min(room[a][b] for a, b in path)
        for a, b in path:
            room[a][b] -= push
            room[b][a] += push
        total += push


@pytest.mark.parametrize("machine", [OPTICAL, HCCS, PLANES, ETHERNET, CLOS, MESH_2D, TORUS])
def test_borders_are_max_flows(machine: Fabric) -> None:
    rng = np.random.default_rng(4)
    net = break_links(build(machine), [f"card:{rng.integers(machine.cards)}=2x"])
    for unit in unit_sizes(net):
        number = int(rng.integers(net.cards // unit))
        inside = {f"card{c}" for c in range(number * unit, (number + 1) * unit)}
        outside = {f"card{c}" for c in range(net.cards)} - inside
        assert egress(net, unit)[number] >= max_flow(net, inside, outside) * (1 - 1e-6)
        assert egress(net, unit)[number] == pytest.approx(max_flow(net, inside, outside), rel=0.35)


@pytest.mark.parametrize("machine", [OPTICAL, DGX, HCCS, PLANES, ETHERNET, CLOS, TORUS])
@pytest.mark.parametrize("kind", ["all-reduce", "all-gather", "reduce-scatter", "all-to-all"])
def test_nothing_beats_the_bound(machine: Fabric, kind: str) -> None:
    p = player(machine)
    for algorithm in candidates(p, kind):
        for size in (2.0**16, 2.0**30):
            bound = lower_bound(p.net, p.group, kind, size)
            assert sch.seconds(p, make(p, kind, algorithm, size), size) >= bound * (1 - 1e-9)


@pytest.mark.parametrize("machine", [HCCS, PLANES, CLOS, SWITCH])
def test_large_messages_reach_the_bound(machine: Fabric) -> None:
    p = player(machine)
    found = collective(p, "all-reduce", 2.0**35)
    assert found.seconds <= 1.03 * found.bound_s


def test_in_network_halves_the_ring() -> None:
    adds = fabric(level("node", "switch", [16], BETA, latency=0.0, reduces=True))
    p = player(adds)
    found = collective(p, "all-reduce", 1e9)
    assert "in-network" in found.stages[0]
    assert found.seconds == pytest.approx(1e9 / BETA, rel=1e-6)
    assert found.nccl.startswith("NCCL_NVLS_ENABLE=1")


def test_at_most_two_are_played_and_the_choice_is_good() -> None:
    worst = []
    for machine in (OPTICAL, DGX, PLANES, ETHERNET, TORUS):
        p = player(machine)
        for size in (2.0**12, 2.0**18, 2.0**24, 2.0**30):
            found = collective(p, "all-reduce", size)
            assert len(found.played) <= 2
            every = [
                sch.seconds(p, make(p, "all-reduce", name, size), size)
                for name in candidates(p, "all-reduce")
            ]
            worst.append(found.seconds / min(every) - 1)
    assert max(worst) <= 0.02


def test_crossover_from_latency_to_bandwidth() -> None:
    p = player(fabric(level("loop", "torus", [16], 50e9)))
    small, large = (collective(p, "all-reduce", size) for size in (2.0**10, 2.0**30))
    assert small.stages != large.stages


def test_dead_cards_have_stand_ins() -> None:
    net = break_links(build(DGX), ["card:5", "card:6", "card:127"])
    roles = stand_ins(net, 128)
    assert roles[5] == 7 and roles[6] == 7 and roles[127] == 120
    healthy = collective(player(DGX), "all-reduce", 1e9).seconds
    hurt = collective(Player(net, make_group(DGX)), "all-reduce", 1e9).seconds
    assert healthy < hurt < 10 * healthy


def test_a_random_placement_costs() -> None:
    net, group = build(OPTICAL), make_group(OPTICAL, size=8)
    mixed = np.random.default_rng(0).permutation(128)
    nested = collective(Player(net, group), "all-reduce", 1e8, "hierarchical").seconds
    random = collective(
        Player(net, group, placement=mixed), "all-reduce", 1e8, "hierarchical"
    ).seconds
    assert random > 3 * nested


def test_background_slows_and_is_repeatable() -> None:
    net, group = build(PLANES), make_group(PLANES)
    alone = collective(Player(net, group), "all-reduce", 1e9, "hierarchical").seconds
    noise = steady_flows(net, ["shuffle:0-127"], 3)
    times = [
        collective(Player(net, group, background=noise), "all-reduce", 1e9, "hierarchical").seconds
        for _ in range(2)
    ]
    assert times[0] == times[1] > alone
    with pytest.raises(InputError, match="FIRST-LAST"):
        steady_flows(net, ["ring"], 0)
    with pytest.raises(InputError, match=r"0\.\.127"):
        steady_flows(net, ["ring:0-999"], 0)


def test_bad_requests() -> None:
    p = player(DGX)
    with pytest.raises(InputError, match="at least one byte"):
        collective(p, "all-reduce", 0)
    with pytest.raises(InputError, match="nearest: ring"):
        collective(p, "all-reduce", 1.0, "rign")
    with pytest.raises(InputError, match="unknown collective"):
        make(p, "all-redcue", "ring", 1.0)
    pod = load_cluster("tpu-v5p").fabric
    hurt = break_links(build(pod), ["card:3"])
    with pytest.raises(InfeasibleError, match="no symmetry"):
        collective(Player(hurt, make_group(pod)), "all-to-all", 1e6, "direct")


def test_one_card_needs_no_time() -> None:
    assert collective(player(DGX, cards=1), "all-reduce", 1e6).seconds == 0.0


def test_hccl_string() -> None:
    p = player(OPTICAL)
    text = hccl_algo(OPTICAL, make(p, "all-reduce", "bucket", 2**30))
    assert text == "HCCL_ALGO=level0:NA;level1:ring;level2:ring"


def test_software_is_added() -> None:
    p = Player(build(SWITCH), make_group(SWITCH), Software(launch_s=1e-5, shares=(0.5,)))
    found = sch.seconds(p, sch.flat(p, "all-reduce", "direct"), 1e9)
    assert found == pytest.approx(1e-5 + 2 * ALPHA + 2 * 15 / 16 * 1e9 / BETA / 0.5)


def test_share_out_is_optimal() -> None:
    np.testing.assert_allclose(share_out(np.array([[1.0, 3.0], [3.0, 1.0]])), [0.5, 0.5])
    rng = np.random.default_rng(0)
    for _ in range(20):
        load = rng.uniform(0.1, 1.0, (3, 6))
        best = (load @ share_out(load)).max()
        tries = rng.dirichlet(np.ones(6), 4000)
        assert best <= (tries @ load.T).max(1).min() + 1e-12


def test_share_out_takes_rows_that_are_alike() -> None:
    """Two links of every kind: rounding must not leave the simplex without a row."""
    light = [0.07516192767999999, 0.009395240959999999]
    heavy = [0.07516192768, 0.60129542144]
    weight = share_out(np.array([light, light, heavy, heavy]))
    np.testing.assert_allclose(weight, [1.0, 0.0], atol=1e-9)
    p = player(ETHERNET)
    for card in range(4):
        broken = Player(break_links(p.net, [f"card:{card}"]), p.group)
        for kind in ("all-reduce", "all-gather"):
            assert collective(broken, kind, 2.0**30).seconds > 0.0


@pytest.mark.parametrize("machine", [SWITCH, OPTICAL, HCCS, ETHERNET])
def test_nothing_beats_the_bound_where_a_card_is_slow(machine: Fabric) -> None:
    """A slow card may be a leaf of a tree: it sends the data once, not twice."""
    p = player(machine)
    slow = Player(break_links(p.net, ["card:1=2x"]), p.group)
    for algorithm in candidates(slow, "all-reduce"):
        bound = lower_bound(slow.net, slow.group, "all-reduce", 2.0**30)
        took = sch.seconds(slow, make(slow, "all-reduce", algorithm, 2.0**30), 2.0**30)
        assert took >= bound * (1 - 1e-9)


@pytest.mark.parametrize("size", [0.0, 0.5, -1.0, 1e19, float("nan"), float("inf")])
def test_sizes_that_no_collective_has(size: float) -> None:
    with pytest.raises(InputError, match="at least one byte"):
        collective(player(SWITCH), "all-reduce", size)


LARGE = {
    "supernode-8192": [(8192, 1), (64, 128)], "traditional-8192": [(8192, 1), (32, 256)],
    "atlas-950": [(8192, 1), (64, 1), (128, 64)], "atlas-900-a3": [(768, 1), (48, 16)],
    "dgx-h100": [(16384, 1), (64, 256)], "gb200-nvl72": [(9216, 1), (72, 1)],
    "mi300x": [(8192, 1)],
}  # fmt: skip


@pytest.mark.parametrize("name", LARGE)
def test_the_plans_term_agrees(name: str) -> None:
    """Large symmetric groups, link rates alone: closed form and flows within 5 %."""
    from lightloom.cost.calibration import Comm, CommLaw
    from lightloom.cost.comm import collective_seconds

    law = CommLaw(share=1.0, edge=0.0, launch_s=0.0, step_s=0.0, ramp=0.0)
    bare = Comm(
        efficiency={"*": 1.0}, gather=law, reduce=law, exchange=law, in_switch=1.2, hop_s=0.0
    )
    machine = load_cluster(name).fabric
    for size, stride in LARGE[name]:
        p = Player(build(machine), make_group(machine, None, size, stride), Software(in_switch=1.2))
        for kind in ("all-reduce", "all-gather", "all-to-all"):
            way = "direct" if kind == "all-to-all" else "hierarchical"
            flows = collective(p, kind, 2.0**34, way).seconds
            plan = float(collective_seconds(machine, kind, size, stride, 2.0**34, comm=bare))
            assert flows == pytest.approx(plan, rel=0.05), (kind, size, stride)
