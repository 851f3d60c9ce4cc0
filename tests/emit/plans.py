"""Plans by hand: every catalogue machine and model that the emitters must answer for."""

from __future__ import annotations

from typing import Any

from lightloom.core.catalog import load_cluster, load_model
from lightloom.core.placement import Placement
from lightloom.core.plan import Plan, Prediction, StageMemory
from lightloom.core.strategy import Strategy

CLUSTERS = ("supernode-8192", "atlas-960", "atlas-900-a3", "dgx-h100", "gb200-nvl72",
            "traditional-8192")  # fmt: skip
MODELS = ("llama-3.1-70b", "llama-3.1-405b", "deepseek-v3", "qwen3-235b-a22b", "gpt-oss-20b")
DEFAULT: dict[str, dict[str, Any]] = {
    "llama-3.1-70b": {"tp": 8, "pp": 2, "dp": 4},
    "llama-3.1-405b": {"tp": 8, "pp": 7, "vpp": 2, "dp": 8, "global_batch": 1008},
    "deepseek-v3": {"tp": 2, "pp": 8, "dp": 16, "ep": 32, "recompute": "selective"},
    "qwen3-235b-a22b": {"tp": 4, "pp": 2, "dp": 16, "ep": 16, "vpp": 1},
    "gpt-oss-20b": {"tp": 1, "pp": 1, "dp": 16, "ep": 8},
}


def prediction() -> Prediction:
    """Return a prediction that only fills the place of a real one."""
    return Prediction(
        step_s=4.67, low_s=4.1, high_s=5.3, extrapolated=True, trust="by hand",
        parts={"compute": 4.67}, hidden={}, tokens_per_s_per_card=1750.0, mfu=0.4, hfu=0.4,
        model_flops=1e18, memory=(StageMemory(stage=0, parts={"weights": 5e10}),),
        usable_bytes=6e10, bubble=0.1, exposed_comm=0.09, power_w=1e6, energy_j=5e6, goodput=0.95,
        wall="compute",
    )  # fmt: skip


def plan(model: str, cluster: str, framework: str = "megatron", **over: Any) -> Plan:
    """Return a plan of the named model and machine."""
    machine = load_cluster(cluster)
    degrees = {**DEFAULT.get(model, {}), **over}
    fields: dict[str, Any] = {"global_batch": 1024, "seq": 4096, "framework": framework, **degrees}
    if framework in ("torchtitan", "fsdp"):
        fields.setdefault("zero", "fsdp")
    strategy = Strategy(**fields)
    return Plan(
        model=load_model(model), cluster=machine, strategy=strategy, placement=Placement(),
        prediction=prediction(), cards=strategy.world_size, made_by="test",
    )  # fmt: skip
