"""Emitted files read by the targets' own readers, where those run without an accelerator.

    python benchmarks/emit_oracles.py chakra CLONE      # needs protobuf and grpcio-tools
    python benchmarks/emit_oracles.py torchtitan CLONE  # needs torch, tyro; clone at v0.2.2
    python benchmarks/emit_oracles.py deepspeed         # needs deepspeed

Each in an environment of its own; results are kept in benchmarks/emit.md.
"""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests" / "emit")]


def chakra(clone: str) -> None:
    """Read traces back with Chakra's own protolib; every send must meet its receive."""
    import plans

    from lightloom.emit.targets import emit

    folder = Path(tempfile.mkdtemp())
    schema = Path(clone) / "schema" / "protobuf"
    words = ["-m", "grpc_tools.protoc", f"-I{schema}", f"--python_out={folder}"]
    subprocess.run([sys.executable, *words, str(schema / "et_def.proto")], check=True)
    sys.path[:0] = [str(folder), str(Path(clone) / "src" / "third_party" / "utils")]
    et, lib = importlib.import_module("et_def_pb2"), importlib.import_module("protolib")
    for model in ("llama-3.1-405b", "deepseek-v3", "llama-3.1-70b"):
        bundle = emit(plans.plan(model, "supernode-8192"), "chakra")
        sends, receives, count = set(), set(), 0
        for file in bundle.files:
            if not file.path.endswith(".et"):
                continue
            path = folder / file.path
            path.write_bytes(file.data)
            stream = lib.openFileRd(str(path))
            assert lib.decodeMessage(stream, et.GlobalMetadata())
            node = et.Node()
            while lib.decodeMessage(stream, node):
                count += 1
                values = {a.name: a.int64_val for a in node.attr}
                keys = ("comm_src", "comm_dst", "comm_tag", "comm_size")
                if node.type in (et.COMM_SEND_NODE, et.COMM_RECV_NODE):
                    which = sends if node.type == et.COMM_SEND_NODE else receives
                    which.add(tuple(values[k] for k in keys))
                node = et.Node()
        print(f"{model}: {count:,} nodes, {len(sends):,} sends, all received: {sends == receives}")


def torchtitan(clone: str) -> None:
    """Parse the job TOML with torchtitan's own ConfigManager."""
    import plans

    from lightloom.emit.targets import emit

    sys.path.insert(0, clone)
    path = Path(tempfile.mkdtemp()) / "job.toml"
    plan = plans.plan("llama-3.1-70b", "gb200-nvl72", "torchtitan", recompute="selective")
    path.write_text(emit(plan, "torchtitan").files[0].text)
    manager = importlib.import_module("torchtitan.config").ConfigManager()
    config = manager.parse_args(["--job.config_file", str(path)])
    print(f"accepted: tp {config.parallelism.tensor_parallel_degree}, "
          f"pp {config.parallelism.pipeline_parallel_degree}")  # fmt: skip


def deepspeed() -> None:
    """Parse the ZeRO section with DeepSpeed's own model."""
    from test_targets import plan_for

    from lightloom.emit.targets import emit

    config = json.loads(emit(plan_for("deepspeed", "llama-3.1-70b", "dgx-h100"), "deepspeed")
                        .files[0].text)  # fmt: skip
    kind = importlib.import_module("deepspeed.runtime.zero.config").DeepSpeedZeroConfig
    print("accepted: stage", kind(**config["zero_optimization"]).stage)


if __name__ == "__main__":
    {"chakra": chakra, "torchtitan": torchtitan, "deepspeed": deepspeed}[sys.argv[1]](*sys.argv[2:])
