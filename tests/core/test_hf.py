"""The model reader: every form of layer, honest about what it does not know."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lightloom.core.catalog import load_model, names
from lightloom.core.errors import InputError
from lightloom.core.hf import model_of, read_model
from lightloom.core.model import Model
from lightloom.core.params import parameters

BASE: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 1024, "num_hidden_layers": 8, "num_attention_heads": 16,
    "num_key_value_heads": 4, "intermediate_size": 4096, "vocab_size": 32000,
    "max_position_embeddings": 4096, "hidden_act": "silu", "tie_word_embeddings": False,
}  # fmt: skip


def read(**changes: Any) -> Model:
    raw = {k: v for k, v in {**BASE, **changes}.items() if v is not ...}
    return model_of(raw, "test", "test")


def kinds(model: Model) -> str:
    short = {"full": "F", "sliding": "S", "chunked": "C", "linear": "L", "ssm": "M", "mla": "A",
             "sparse": "P", "none": "-"}  # fmt: skip
    return "".join(short[model.blocks[i].attention.kind] for i in model.layer_blocks)


def routed(model: Model) -> str:
    return "".join("E" if model.blocks[i].mlp.is_moe else "." for i in model.layer_blocks)


@pytest.mark.parametrize("name", names("models"))
def test_every_shipped_model_is_read_and_understood(name: str) -> None:
    model = load_model(name)
    assert model.ignored == ()
    assert not any("not known" in text for text in model.approximated)
    assert len(model.layer_blocks) == model.layers
    assert model.source


def test_attention_shapes() -> None:
    gqa = read().blocks[0].attention
    assert (gqa.heads, gqa.kv_heads, gqa.head_dim, gqa.v_head_dim) == (16, 4, 64, 64)
    assert read(num_key_value_heads=...).blocks[0].attention.kv_heads == 16
    mqa = read(model_type="falcon", multi_query=True, num_key_value_heads=...)
    assert mqa.blocks[0].attention.kv_heads == 1
    mla = load_model("deepseek-v3").blocks[1].attention
    assert (mla.kind, mla.q_lora, mla.kv_lora, mla.rope_dim) == ("mla", 1536, 512, 64)
    assert (mla.head_dim, mla.v_head_dim) == (192, 128)


def test_windows() -> None:
    assert kinds(read(model_type="mistral", sliding_window=1024)) == "S" * 8
    assert kinds(read(model_type="mistral", sliding_window=None)) == "F" * 8
    assert kinds(read(model_type="qwen2", sliding_window=64, use_sliding_window=False)) == "F" * 8
    two = read(model_type="qwen2", sliding_window=64, use_sliding_window=True, max_window_layers=6)
    assert kinds(two) == "FFFFFFSS"
    assert kinds(read(model_type="gemma2", sliding_window=64)) == "SFSFSFSF"
    gemma3 = read(model_type="gemma3_text", sliding_window=64, sliding_window_pattern=4)
    assert kinds(gemma3) == "SSSFSSSF"
    assert kinds(
        read(layer_types=["sliding_attention", "full_attention"] * 4, sliding_window=9)
    ) == ("SFSFSFSF")
    llama4 = read(model_type="llama4_text", attention_chunk_size=8192)
    assert kinds(llama4) == "CCCFCCCF"
    mimo = read(hybrid_layer_pattern=[0, 1, 1, 1, 0, 1, 1, 0], sliding_window=128,
                swa_num_key_value_heads=8)  # fmt: skip
    assert kinds(mimo) == "FSSSFSSF"
    assert {b.attention.kv_heads for b in mimo.blocks} == {4, 8}


def test_hybrids() -> None:
    jamba = read(model_type="jamba", attn_layer_period=4, attn_layer_offset=2)
    assert kinds(jamba) == "MMFMMMFM"
    nemotron = read(model_type="nemotron_h", hybrid_override_pattern="MEM*-MEM", n_routed_experts=4,
                    num_experts_per_tok=2, moe_intermediate_size=64, mamba_num_heads=16,
                    mamba_head_dim=64, ssm_state_size=32)  # fmt: skip
    assert kinds(nemotron) == "M-MF-M-M"
    assert routed(nemotron) == ".E....E."
    assert nemotron.blocks[0].mlp.hidden == 0
    delta = read(full_attention_interval=4, linear_num_value_heads=8, linear_num_key_heads=4,
                 linear_key_head_dim=32, linear_value_head_dim=64,
                 linear_conv_kernel_dim=4)  # fmt: skip
    assert kinds(delta) == "LLLFLLLF"
    first = delta.blocks[0].attention
    assert (first.heads, first.kv_heads, first.head_dim, first.v_head_dim) == (8, 4, 32, 64)
    both = read(model_type="falcon_h1", mamba_n_heads=16, mamba_d_head=64, mamba_d_state=64)
    assert both.layers == 16
    assert any("two layers" in text for text in both.approximated)
    kimi = load_model("kimi-linear-48b-a3b")
    assert kinds(kimi) == "LLLALLLALLLALLLALLLALLLALLA"


def test_sparse_attention_and_its_indexer() -> None:
    v32 = load_model("deepseek-v3.2").blocks[-1].attention
    assert (v32.kind, v32.window, v32.index_heads, v32.index_dim) == ("mla", 2048, 64, 128)
    glm = load_model("glm-5.2")
    assert sorted({b.attention.index_heads for b in glm.blocks}) == [0, 32]
    v4 = load_model("deepseek-v4-flash")
    assert {b.attention.compress for b in v4.blocks} == {4, 128}
    assert any("hyper-connections" in text for text in v4.approximated)
    blocks = read(sparse_config={"topk": 8, "block_size": 64, "window_size": 256})
    assert blocks.blocks[0].attention.window == 8 * 64 + 256
    assert any("sparse_config" in text for text in blocks.approximated)


def test_where_experts_are() -> None:
    moe = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 128}
    assert routed(read(**moe)) == "E" * 8
    assert routed(read(**moe, first_k_dense_replace=3)) == "...EEEEE"
    assert routed(read(**moe, decoder_sparse_step=2)) == ".E.E.E.E"
    assert routed(read(**moe, mlp_only_layers=[0, 7])) == ".EEEEEE."
    assert routed(read(**moe, moe_layers_enum="2,3")) == "..EE...."
    assert routed(read(**moe, moe_layer_freq=[0, 1] * 4)) == ".E.E.E.E"
    assert routed(read(**moe, expert_layer_period=2, expert_layer_offset=1)) == ".E.E.E.E"
    assert routed(read(**moe, mlp_layer_types=["dense"] + ["sparse"] * 7)) == ".EEEEEEE"
    assert routed(read(**moe, model_type="llama4_text", interleave_moe_layer_step=2)) == ".E.E.E.E"
    assert routed(read(num_experts=1, num_experts_per_tok=1)) == "." * 8
    shared = read(**moe, n_shared_experts=2).blocks[0].mlp
    assert (shared.shared_experts, shared.shared_hidden) == (2, 256)
    dense = load_model("llama-4-maverick-17b-128e")
    assert {b.mlp.hidden for b in dense.blocks if not b.mlp.is_moe} == {16384}


def test_prediction_layers_positions_norms_and_ties() -> None:
    assert load_model("deepseek-v3").mtp_layers == 1
    assert load_model("kimi-k2.5").mtp_layers == 0
    gpt = load_model("gpt2")
    assert (gpt.learned_positions, gpt.norm, gpt.tied) == (1024, "layer", True)
    assert not gpt.blocks[0].mlp.gated
    assert load_model("gemma-2-9b").norms == 4
    assert load_model("qwen3-0.6b").tied


def test_wrappers_count_the_language_part_only() -> None:
    model = load_model("qwen3-vl-30b-a3b-instruct")
    assert model.hidden == 2048
    assert any("vision_config" in text for text in model.approximated)


def test_a_nested_configuration_may_leave_out_defaults() -> None:
    given = {"model_type": "gemma3_text", "hidden_size": 2560, "intermediate_size": 10240,
             "num_hidden_layers": 34, "sliding_window": 1024}  # fmt: skip
    model = model_of({"model_type": "gemma3", "text_config": given}, "gemma-3-4b", "test")
    assert (model.vocab, model.blocks[0].attention.head_dim) == (262208, 256)
    assert any("defaults of the family" in text for text in model.approximated)
    assert parameters(model).total == pytest.approx(3.88e9, rel=0.01)
    with pytest.raises(InputError):
        model_of({"model_type": "new", "text_config": {"hidden_size": 64}}, "x", "x")


def test_layers_written_block_by_block_and_shortcuts() -> None:
    blocks = [{"attention": {"n_heads_in_group": 8}, "ffn": {"ffn_mult": 3.0}},
              {"attention": {"no_op": True}, "ffn": {"intermediate_size": 512}}] * 4  # fmt: skip
    searched = read(block_configs=blocks, intermediate_size=..., num_key_value_heads=...)
    assert kinds(searched) == "F-F-F-F-"
    assert searched.blocks[0].attention.kv_heads == 2
    assert [b.mlp.hidden for b in searched.blocks] == [2048, 512]
    shortcut = read(model_type="longcat_flash", ffn_hidden_size=2048, intermediate_size=...,
                    n_routed_experts=8, moe_topk=2, expert_ffn_hidden_size=128)  # fmt: skip
    assert shortcut.layers == 16
    assert [b.mlp.hidden for b in shortcut.blocks] == [2048, 2048]


def test_a_field_that_is_not_understood_is_named() -> None:
    model = read(mixture_of_depths_ratio=0.125, per_layer_memory_slots=64)
    assert model.ignored == ("mixture_of_depths_ratio", "per_layer_memory_slots")
    assert read(something_off=False, nothing=None, empty=[]).ignored == ()
    assert any("not known" in text for text in read(model_type="brand_new").approximated)
    assert any("made_up" in t for t in read(layer_types=["made_up"] * 8).approximated)
    outer = model_of({"model_type": "x", "text_config": BASE, "router_twist": 3}, "x", "x")
    assert outer.ignored == ("router_twist",)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"hidden_size": ...}, "no hidden_size"),
        ({"hidden_size": "1024"}, "hidden_size is '1024'"),
        ({"num_hidden_layers": -3}, "num_hidden_layers is '-3'"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers"),
        ({"num_attention_heads": 0}, "num_attention_heads"),
        ({"num_key_value_heads": 5}, "16 heads are not a multiple of 5"),
        ({"vocab_size": float("nan")}, "vocab_size is 'nan'"),
        ({"layer_types": ["full_attention"]}, "layer_types has 1 entries for 8 layers"),
        ({"model_type": "bert"}, "not a decoder"),
        ({"is_encoder_decoder": True}, "not a decoder"),
        ({"num_experts": 8, "num_experts_per_tok": 9}, "9 experts per token of 8"),
        ({"num_experts": 8}, "no num_experts_per_tok"),
        ({"intermediate_size": None}, "no intermediate_size"),
    ],
)
def test_mistakes_are_answered(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError) as caught:
        read(**changes)
    assert says in str(caught.value)


def test_files_folders_and_names(tmp_path: Path) -> None:
    folder = tmp_path / "My-Model-7B"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(BASE))
    assert read_model(str(folder)).name == "my-model-7b"
    assert read_model(str(folder / "config.json")).layers == 8
    assert load_model("meta-llama/Meta-Llama-3.1-70B").name == "llama-3.1-70b"
    assert load_model("Qwen/Qwen3-8B").name == "qwen3-8b"
    for text, says in ((b"{", "not JSON"), (b"[1]", "not list"), (b"\xff\xfe", "not JSON")):
        (tmp_path / "bad.json").write_bytes(text)
        with pytest.raises(InputError, match=says):
            read_model(str(tmp_path / "bad.json"))
    for name in ("deepseek-v33", "", "../x", "a\x00b", "x" * 5000, "nothing.json"):
        with pytest.raises(InputError):
            read_model(name)
    with pytest.raises(InputError, match="nearest: deepseek-v3"):
        read_model("deepseek-v33")


def test_sizes_alone() -> None:
    model = load_model("70B")
    assert model.hidden == 8192
    assert model.blocks[0].attention.heads % 8 == 0
    assert "size alone" in model.approximated[0]
    with pytest.raises(InputError):
        load_model("1K")


SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(), st.text(max_size=8)
)
ANY = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)
FIELDS = st.sampled_from(sorted({k for n in ("deepseek-v3.2", "jamba-v0.1", "qwen3.5-35b-a3b")
                                 for k in json.loads((Path(sys.modules["lightloom"].__path__[0])
                                 / "catalog" / "models" / f"{n}.json").read_text())}))  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(changes=st.dictionaries(FIELDS | st.text(max_size=12), ANY, max_size=6))
def test_any_configuration_is_read_or_answered(changes: dict[str, Any]) -> None:
    try:
        model = model_of({**BASE, **changes}, "test", "test")
    except InputError as error:
        assert str(error)
    else:
        assert model.layers >= 1
