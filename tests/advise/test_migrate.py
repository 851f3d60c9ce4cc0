"""Migration: values and reasons of settings, edits that keep the rest, losses that are listed."""

from __future__ import annotations

import ast
import json
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from lightloom.advise.migrate import migrate, read_source
from lightloom.advise.migrate_checks import order_of
from lightloom.advise.migrate_docker import move_dockerfile, versions_for
from lightloom.advise.migrate_env import MAP, NONE, answer
from lightloom.advise.migrate_ops import judge, of_model, versions
from lightloom.advise.migrate_python import move_python
from lightloom.advise.migrate_shell import check_quotes, move_script, timeouts
from lightloom.cli.main import cli
from lightloom.core.catalog import load_model
from lightloom.core.errors import InputError, LightloomError
from lightloom.emit.check import check_text
from lightloom.emit.facts import hccl_variables
from lightloom.emit.lint_env import ABSENT

SCRIPTS = Path(__file__).resolve().parents[1] / "data" / "scripts"


@pytest.mark.parametrize(("name", "value", "pairs"), [
    ("HCCL_ALGO", "Ring", {"HCCL_ALGO": '"level0:NA;level1:ring"'}),
    ("NCCL_ALGO", "Tree", {"HCCL_ALGO": '"level0:NA;level1:NHR"'}),
    ("NCCL_IB_TC", "106", {"HCCL_RDMA_TC": "104"}),
    ("NCCL_IB_TIMEOUT", "22", {"HCCL_RDMA_TIMEOUT": "20"}),
    ("NCCL_DEBUG", "INFO", {"ASCEND_GLOBAL_LOG_LEVEL": "1"}),
    ("NCCL_MNNVL_ENABLE", "0", {"HCCL_INTER_HCCS_DISABLE": "TRUE"}),
    ("CUDA_VISIBLE_DEVICES", "0,1", {"ASCEND_RT_VISIBLE_DEVICES": "0,1"}),
    ("TORCH_NCCL_BLOCKING_WAIT", "1", {"TORCH_HCCL_BLOCKING_WAIT": "1"}),
    ("HCCL_BUFFSIZE", "200", {"HCCL_BUFFSIZE": "200"}),
])  # fmt: skip
def test_variables(name: str, value: str, pairs: dict[str, str]) -> None:
    found = answer(name, value)
    assert dict(found.pairs) == pairs and found.why and found.source.startswith("published")


def test_the_invented_time_out_becomes_three_in_order() -> None:
    found = dict(answer("HCCL_TIMEOUT", "1800").pairs)
    values = [int(found[f"HCCL_{n}_TIMEOUT"]) for n in ("CONNECT", "EXEC", "EVENT")]
    assert values[1] == 1800 and values == sorted(set(values))
    assert "does not exist" in answer("HCCL_TIMEOUT", "1800").why


@given(st.integers(0, 100000))
def test_any_invented_time_out_keeps_ranges(seconds: int) -> None:
    found = {k: int(v) for k, v in answer("HCCL_TIMEOUT", str(seconds)).pairs}
    assert 120 <= found["HCCL_CONNECT_TIMEOUT"] <= 7200
    assert found["HCCL_EXEC_TIMEOUT"] < found["HCCL_EVENT_TIMEOUT"]


@given(st.integers(200, 10000))
def test_time_outs_end_before_the_group(group: int) -> None:
    assert order_of(" ".join(f"{k}={v}" for k, v in timeouts(group).items()),
                    float(group))[0].severity == "info"  # fmt: skip


def test_every_name_in_the_map_is_documented() -> None:
    real = {**hccl_variables(), "TORCH_HCCL_ASYNC_ERROR_HANDLING": {}}
    hccl = {v for v in MAP.values() if v.startswith("HCCL_")}
    assert hccl <= set(real)


@pytest.mark.parametrize("name", sorted(set(NONE) | set(ABSENT) - {"HCCL_TIMEOUT"}))
def test_what_has_no_counterpart_is_listed_not_dropped(name: str) -> None:
    found = move_script("a.sh", f"#!/bin/bash\nexport {name}=1\n", "a3")
    assert any(name in x.what for x in found.lacking)
    assert f"# lightloom: no counterpart: export {name}=1" in found.text


def test_megatron_script_comes_out_valid(tmp_path: Path) -> None:
    text = (SCRIPTS / "pretrain_llama_8b.sh").read_text()
    found = move_script("pretrain_llama_8b.sh", text, "a3")
    path = tmp_path / "moved.sh"
    path.write_text(found.text)
    assert subprocess.run(["bash", "-n", str(path)], check=False).returncode == 0
    assert not [f for f in check_text("moved.sh", found.text)[1] if f.severity == "error"]
    for word in ("NCCL_IB_TIMEOUT", "HCCL_TIMEOUT=", "ALGO=Ring", "--attention-backend",
                 "--fp8-format", "HuggingFaceTokenizer"):  # fmt: skip
        live = [x for x in found.text.splitlines() if word in x and not x.startswith("#")]
        assert not live, live
    assert "--distributed-timeout-minutes 40" in found.text
    kept = "    --num-attention-heads 32"
    assert kept in found.text, "untouched lines stay byte for byte"


def test_fp8_stays_on_the_950() -> None:
    text = (SCRIPTS / "pretrain_llama_8b.sh").read_text()
    assert "--fp8-format hybrid" in move_script("x.sh", text, "950").text


def test_continued_lines_stay_continued() -> None:
    text = ("#!/bin/bash\nNCCL_IB_HCA=mlx5 \\\nNCCL_SOCKET_IFNAME=eth0 \\\n"
            "torchrun --nproc-per-node 8 train.py \\\n  --lr 1\n")  # fmt: skip
    moved = move_script("a.sh", text, "a3").text
    assert "HCCL_SOCKET_IFNAME=eth0 \\\ntorchrun" in moved
    assert subprocess.run(["bash", "-nc", moved], check=False).returncode == 0


def test_mpirun_exports_and_references_are_renamed() -> None:
    moved = move_script("a.sh", "mpirun -x NCCL_SOCKET_IFNAME -x PATH ./a $NCCL_IB_SL\n", "a2").text
    assert "-x HCCL_SOCKET_IFNAME -x PATH ./a $HCCL_RDMA_SL" in moved


def test_a_script_already_moved_stays() -> None:
    text = (SCRIPTS / "pretrain_llama_8b.sh").read_text()
    once = move_script("a.sh", text, "a3").text
    twice = move_script("a.sh", once, "a3").text
    assert twice.count("set_env.sh") == once.count("set_env.sh")
    assert sorted(set(once.split())) == sorted(set(twice.split()))


def test_ddp_program() -> None:
    text = (SCRIPTS / "train_ddp.py").read_text()
    found = move_python("train_ddp.py", text)
    ast.parse(found.text)
    assert "import torch_npu" in found.text and 'backend="hccl"' in found.text
    assert 'f"npu:{local}"' in found.text and "é stays where it is" in found.text
    live = "\n".join(x for x in found.text.splitlines() if "lightloom:" not in x)
    assert "cuda" not in live.replace("flash_attn", "")
    assert found.used.group_s == 600 and found.used.groups == 1
    assert {"import flash_attn"} <= {x.what for x in found.lacking}
    assert len(found.text.splitlines()) == len(text.splitlines()) + 1


@pytest.mark.parametrize(("before", "after"), [
    ("x = torch.cuda.device_count()", "x = torch.npu.device_count()"),
    ("y = x.cuda()", "y = x.npu()"), ("y = x.to('cuda:1')", "y = x.to('npu:1')"),
    ("with torch.cuda.stream(s): pass", "with torch.npu.stream(s): pass"),
    ("print('cuda is a word in a sentence')", "print('cuda is a word in a sentence')"),
    ("d = {'nccl': 1}", "d = {'hccl': 1}"),
    ("é = x.cuda() + torch.cuda.current_device()", "é = x.npu() + torch.npu.current_device()"),
    ("import os\nos.environ['HCCL_TIMEOUT'] = '600'",
     'import os\nos.environ["HCCL_CONNECT_TIMEOUT"] = "540"; os.environ["HCCL_EXEC_TIMEOUT"] = '
     '"600"; os.environ["HCCL_EVENT_TIMEOUT"] = "632"'),
])  # fmt: skip
def test_edits_touch_only_their_place(before: str, after: str) -> None:
    head = "import torch\n"
    moved = move_python("a.py", head + before + "\n").text
    assert moved == "import torch\nimport torch_npu  # noqa: F401\n" + after + "\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("a = os.environ['CUDA_VISIBLE_DEVICES']", 'a = os.environ["ASCEND_RT_VISIBLE_DEVICES"]'),
        ("e = {'NCCL_IB_TC': '106', 'A': 'b'}", "e = {\"HCCL_RDMA_TC\": \"104\", 'A': 'b'}"),
    ],
)
def test_environment_as_data(before: str, after: str) -> None:
    assert after in move_python("a.py", f"import os\n{before}\n").text


def test_environment_that_cannot_move_is_listed() -> None:
    text = "import os\ne = {'NCCL_IB_HCA': 'mlx5'}\nb = os.environ['NCCL_ALGO']\n"
    found = move_python("a.py", text)
    assert found.text == text and len(found.lacking) == 2


def test_a_statement_over_several_lines_becomes_one_comment() -> None:
    text = "import os\nos.environ[\n    'NCCL_NVLS_ENABLE'\n] = '0'  # why\nx = 1\n"
    moved = move_python("a.py", text).text
    assert moved.splitlines()[1].startswith("pass  # lightloom: no counterpart: os.environ[")
    assert moved.endswith("# why\nx = 1\n")


def test_a_misspelt_variable_names_its_nearest() -> None:
    found = move_script("a.sh", "export NCCL_SOKET_IFNAME=eth0\n", "a3").lacking[0]
    assert "NCCL_SOCKET_IFNAME" in found.nearest


@pytest.mark.parametrize(
    ("text", "line"), [("#!/bin/bash\necho 'x\necho y\n", 2), ("x=`date\n", 1), ('a=1\nb="\n', 2)]
)
def test_an_open_quote_is_named(text: str, line: int) -> None:
    with pytest.raises(InputError, match=f"a.sh:{line}"):
        check_quotes("a.sh", text)
    with pytest.raises(InputError, match="nothing was written"):
        move_script("a.sh", text, "a3")


def test_broken_grammar_is_named_with_its_line() -> None:
    with pytest.raises(InputError, match=r"a\.sh:"):
        move_script("a.sh", "#!/bin/bash\nif true; then\nexport NCCL_DEBUG=INFO\n", "a3")


@pytest.mark.parametrize(
    "text",
    ["# don't\necho ok\n", "cat <<EOF\ndon't\nEOF\n", "echo it\\'s\n", 'a="$(grep \'"\' f)"\n'],
)
def test_quotes_that_are_none(text: str) -> None:
    move_script("a.sh", text, "a3")


def test_import_forms() -> None:
    text = "from torch.cuda.amp import autocast\nimport torch.cuda as c\n"
    moved = move_python("a.py", text).text
    assert "from torch_npu.npu.amp import autocast" in moved
    assert "import torch_npu.npu as c" in moved


def test_operators_by_state() -> None:
    version = versions()[-1]
    state = {n: judge(n, ("a.py:1",), "a3", version).state for n in (
        "torch.topk", "torch.Tensor.item", "torch.linalg.lstsq", "flash_attn.flash_attn_func",
        "torch.no_such_operator")}  # fmt: skip
    assert state == {"torch.topk": "supported", "torch.Tensor.item": "slow",
                     "torch.linalg.lstsq": "slow", "flash_attn.flash_attn_func": "absent",
                     "torch.no_such_operator": "unknown"}  # fmt: skip
    assert judge("torch.topk", (), "950", version).state != "supported"


@pytest.mark.parametrize("name", ["deepseek-v3", "llama-3.1-70b", "qwen3-235b-a22b", "mamba2-2.7b"])
def test_models_use_what_they_are_made_of(name: str) -> None:
    found = {o.name: o for o in of_model(load_model(name), "a2", versions()[-1])}
    assert ("torch._grouped_mm" in found) == load_model(name).is_moe
    assert all(o.source for o in found.values())
    if name.startswith("mamba"):
        assert any(o.state == "absent" for o in found.values())


def test_container_file() -> None:
    found = move_dockerfile("Dockerfile", (SCRIPTS / "Dockerfile").read_text(), "a2")
    assert "torch==2.7.1 torch_npu==2.7.1" in found.text and "cu126" not in found.text
    assert "FROM quay.io/ascend/cann:" in found.text and "-910b-" in found.text
    assert {"flash-attn==2.7.4", "apex"} <= {x.what for x in found.lacking}
    assert "transformers==4.57.0 datasets" in found.text
    assert not [f for f in check_text("Dockerfile", found.text)[1] if f.severity == "error"]


def test_unknown_torch_takes_the_nearest_pair() -> None:
    found = versions_for("2.5.0")
    assert found[0].torch == "2.5.1" and "nearest" in found[0].why


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=200))
def test_any_text_is_answered(text: str) -> None:
    for work in (lambda: move_python("a.py", text), lambda: move_script("a.sh", text, "a3"),
                 lambda: move_dockerfile("Dockerfile", text, "a3")):  # fmt: skip
        try:
            work()
        except LightloomError as error:
            assert str(error)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(
    ["export NCCL_DEBUG=INFO", "--fp8-format hybrid", "\\", '"', "NCCL_IB_HCA=a,b", "if true; then",
     "pretrain_gpt.py", "--bf16", "# NCCL_ALGO=Ring", "$CUDA_VISIBLE_DEVICES", "nvidia-smi", ")"]
), max_size=12))  # fmt: skip
def test_lines_are_never_lost(parts: list[str]) -> None:
    text = "#!/bin/bash\n" + "\n".join(parts) + "\n"
    try:
        moved = move_script("a.sh", text, "a3")
    except InputError as error:
        assert "a.sh:" in error.what
        return
    comments = sum(p.startswith("#") for p in parts)
    assert sum(x.startswith("# NCCL") for x in moved.text.splitlines()) == comments


def command(*words: str):
    return CliRunner().invoke(cli, ["migrate", *words])


def test_command_writes_everything(tmp_path: Path) -> None:
    inputs = [str(SCRIPTS / n) for n in ("train_ddp.py", "Dockerfile", "job.env")]
    done = command(*inputs, "-o", str(tmp_path / "out"), "--json")
    told = json.loads(done.stdout)
    assert {Path(p).name for p in told["files"]} == {
        "train_ddp.py", "Dockerfile", "job.env", "layers.py", "MIGRATION.md"}  # fmt: skip
    report = (tmp_path / "out" / "MIGRATION.md").read_text()
    assert "NCCL_PROTO=Simple" in report and "Baseline" in report
    compile((tmp_path / "out" / "layers.py").read_text(), "layers.py", "exec")
    assert any(f["code"] == "timeout-order" and f["severity"] == "warning"
               for f in told["settings"])  # fmt: skip


def test_a_broken_script_writes_nothing(tmp_path: Path) -> None:
    bad = tmp_path / "bad.py"
    bad.write_text("import torch\nx = (\n")
    out = tmp_path / "out"
    done = command(str(bad), str(SCRIPTS / "job.env"), "-o", str(out))
    assert isinstance(done.exception, InputError) and "bad.py:2" in str(done.exception)
    assert not out.exists()


def test_inputs_are_never_replaced(tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_text("#!/bin/bash\nexport NCCL_DEBUG=INFO\n")
    done = command(str(path), "-o", str(tmp_path))
    assert isinstance(done.exception, InputError) and "NCCL" in path.read_text()


@pytest.mark.parametrize("words", [(), ("/nowhere/a.py",), ("no-such-model",)])
def test_bad_input(words: tuple[str, ...]) -> None:
    assert isinstance(command(*words).exception, InputError)


@pytest.mark.parametrize("data", [b"\xff\xfe\x00", b"a\x00b", b"just words\n"])
def test_what_is_no_script_is_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "thing"
    path.write_bytes(data)
    with pytest.raises(InputError):
        read_source(str(path))


def test_two_files_of_one_name_are_refused(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "run.sh").write_text("#!/bin/bash\nexport NCCL_DEBUG=INFO\n")
    sources = [read_source(str(tmp_path / f / "run.sh")) for f in ("a", "b")]
    with pytest.raises(InputError, match="two files"):
        migrate(sources, [], "ascend")


FORMS = [
    ('A=(\n  "--fp8-format hybrid"\n  "--bf16"\n)\n', ("--bf16",), ("--fp8-format", "hybrid")),
    ("A=(\n --attention-backend auto # flash (or not)\n)\n", ("# flash (or not)",), ("auto",)),
    ('A="--bf16 --fp8-format hybrid"\n', ('"--bf16', '"'), ("hybrid",)),
    ("A=(--bf16 --fp8-format hybrid)\n", ("--bf16", ")"), ("hybrid",)),
    ('x --cuda-graph-impl "local" \\\n  --lr -1\n', ("--lr -1",), ("local",)),
    ("x --moe-deepep-num-sms -1 --bf16\n", ("--bf16",), ("-1",)),
    ("NVTE_X=$(cat a |\n  sed s/x/y/)\n", ("NVTE_X=$(cat a |",), ()),
    ("# run pretrain_gpt.py by hand\n", ("# run pretrain_gpt.py by hand",), ("--distributed",)),
    ('S="a/pretrain_gpt.py"\n', ('S="a/pretrain_gpt.py"',), ("--distributed",)),
]


@pytest.mark.parametrize(("text", "stay", "go"), FORMS)
def test_flags_in_every_form(text: str, stay: tuple[str, ...], go: tuple[str, ...]) -> None:
    head = "#!/bin/bash\ntrue --tensor-model-parallel-size 1\n"
    moved = move_script("a.sh", head + text, "a3")
    body = moved.text[moved.text.index("true --tensor") :]
    for word in stay:
        assert word in body, body
    for word in go:
        assert word not in body, body


def test_values_move_with_their_names_and_graphs_have_a_counterpart() -> None:
    text = (
        "import os, torch\nfrom torch.cuda import CUDAGraph\n"
        'os.environ.setdefault("NCCL_IB_TIMEOUT", "22")\ng = torch.cuda.CUDAGraph()\n'
    )
    moved = move_python("a.py", text).text
    assert 'setdefault("HCCL_RDMA_TIMEOUT", "20")' in moved
    assert "from torch_npu.npu import NPUGraph as CUDAGraph" in moved
    assert "g = torch.npu.NPUGraph()" in moved
