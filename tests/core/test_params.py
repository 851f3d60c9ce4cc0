"""Parameters against published counts, within 1 %; the convention of each count is said.

The counts are quoted from memory of the cited pages (not re-opened); configurations that are not
packaged ones were written the same way, so that a count checks the configuration as well.
"""

from __future__ import annotations

import pytest

from lightloom.core.catalog import load_model, names
from lightloom.core.model import Model
from lightloom.core.params import Convention, parameters

BOTH = Convention()
NO_EMBEDDING = Convention(embedding=False)
BODY = Convention(embedding=False, head=False)
ENDS_BUT_ACTIVE_HEAD = Convention(active_embedding=False)
WITH_MTP = Convention(mtp=True)
HF = "https://huggingface.co/"

PUBLISHED: tuple[tuple[str, float, float | None, Convention, str], ...] = (
    # name, total, active (None: dense or not printed), convention, source
    ("gpt2", 124.44e6, None, BOTH, HF + "openai-community/gpt2 (safetensors index)"),
    ("gpt2-xl", 1557.6e6, None, BOTH, HF + "openai-community/gpt2-xl"),
    ("gpt3-175b", 174.6e9, None, BOTH, "arXiv 2005.14165, appendix D: 174,600M"),
    ("mt-nlg-530b", 530e9, None, BOTH, "arXiv 2201.11990, abstract"),
    ("megatron-1t", 1008e9, None, BOTH, "arXiv 2104.04473, table 1: 1008.0 billion"),
    ("llama-7b", 6.738e9, None, BOTH, HF + "huggyllama/llama-7b"),
    ("llama-65b", 65.286e9, None, BOTH, HF + "huggyllama/llama-65b"),
    ("llama-2-70b", 68.977e9, None, BOTH, HF + "meta-llama/Llama-2-70b-hf"),
    ("llama-3.1-8b", 8.030e9, None, BOTH, HF + "meta-llama/Llama-3.1-8B"),
    ("llama-3.1-70b", 70.554e9, None, BOTH, HF + "meta-llama/Llama-3.1-70B"),
    ("llama-3.1-405b", 405.85e9, None, BOTH, HF + "meta-llama/Llama-3.1-405B"),
    ("mistral-7b-v0.1", 7.242e9, None, BOTH, HF + "mistralai/Mistral-7B-v0.1"),
    ("mixtral-8x7b-v0.1", 46.7e9, 12.9e9, BOTH, "arXiv 2401.04088"),
    ("mixtral-8x22b-v0.1", 141e9, 39e9, BOTH, "mistral.ai/news/mixtral-8x22b"),
    ("qwen2.5-7b", 7.616e9, None, BOTH, HF + "Qwen/Qwen2.5-7B (7.61B; non-embedding 6.53B)"),
    ("qwen2.5-7b", 6.53e9, None, BODY, HF + "Qwen/Qwen2.5-7B (non-embedding)"),
    ("qwen2.5-32b", 31.0e9, None, BODY, HF + "Qwen/Qwen2.5-32B (non-embedding)"),
    ("qwen2.5-72b", 72.7e9, None, BOTH, HF + "Qwen/Qwen2.5-72B"),
    ("qwen3-0.6b", 0.44e9, None, BODY, HF + "Qwen/Qwen3-0.6B (non-embedding)"),
    ("qwen3-32b", 32.8e9, None, BOTH, HF + "Qwen/Qwen3-32B"),
    ("qwen3-30b-a3b", 30.5e9, 3.3e9, BOTH, HF + "Qwen/Qwen3-30B-A3B (active rounded)"),
    ("qwen3-235b-a22b", 235e9, 22e9, BOTH, HF + "Qwen/Qwen3-235B-A22B"),
    ("qwen3-coder-480b-a35b", 480e9, 35e9, BOTH, HF + "Qwen/Qwen3-Coder-480B-A35B-Instruct"),
    ("qwen3-next-80b-a3b", 79e9, None, NO_EMBEDDING, HF + "Qwen/Qwen3-Next-80B-A3B"),
    ("qwen3.5-122b-a10b", 122e9, None, BOTH, "name of the model; language part only"),
    ("qwen3.5-35b-a3b", 35e9, None, BOTH, "name of the model; language part only"),
    ("deepseek-v2", 236e9, 21e9, NO_EMBEDDING, "arXiv 2405.04434"),
    ("deepseek-v3", 671e9, 37e9, BOTH, "arXiv 2412.19437; active 36.7 without one of the ends"),
    ("deepseek-v3", 682e9, None, WITH_MTP, HF + "deepseek-ai/DeepSeek-V3 less copied ends"),
    ("kimi-k2-instruct", 1.026e12, 32e9, NO_EMBEDDING, "arXiv 2507.20534: 1.04T and 32.6B"),
    ("glm-4.5", 355e9, 32e9, NO_EMBEDDING, "arXiv 2508.06471"),
    ("glm-4.5-air", 106e9, None, BOTH, "arXiv 2508.06471"),
    ("glm-5", 744e9, 40e9, BODY, HF + "zai-org/GLM-5"),
    ("gpt-oss-20b", 20.91e9, 3.61e9, ENDS_BUT_ACTIVE_HEAD, "arXiv 2508.10925, table 1"),
    ("gpt-oss-120b", 116.83e9, 5.13e9, ENDS_BUT_ACTIVE_HEAD, "arXiv 2508.10925, table 1"),
    ("minimax-m2.5", 229e9, 10e9, BODY, HF + "MiniMaxAI/MiniMax-M2 (230B, A10B)"),
    ("minimax-m1", 456e9, 45.9e9, BODY, "arXiv 2506.13585"),
    ("llama-4-maverick-17b-128e", 400e9, 17e9, BOTH, HF + "meta-llama/Llama-4-Maverick-17B-128E"),
    ("llama-4-scout-17b-16e-instruct", 107.8e9, 17e9, BOTH, "109B with the vision tower of 0.9B"),
    ("gemma-2-9b", 9.24e9, None, BOTH, HF + "google/gemma-2-9b"),
    ("gemma-2-27b", 27.23e9, None, BOTH, HF + "google/gemma-2-27b"),
    ("gemma-3-27b", 27.0e9, None, BOTH, "arXiv 2503.19786, table 1: 25.6B + 1.4B embedding"),
    ("bloom-176b", 176.25e9, None, BOTH, HF + "bigscience/bloom: 176,247,271,424"),
    ("falcon-40b", 41.3e9, None, BOTH, HF + "tiiuae/falcon-40b (tied)"),
    ("falcon-180b", 179.5e9, None, BOTH, HF + "tiiuae/falcon-180B"),
    ("phi-2", 2.78e9, None, BOTH, HF + "microsoft/phi-2"),
    ("phi-4", 14.66e9, None, BOTH, HF + "microsoft/phi-4"),
    ("nemotron-4-340b", 341e9, None, BOTH, HF + "nvidia/Nemotron-4-340B-Base"),
    ("grok-1", 314e9, None, BOTH, "github.com/xai-org/grok-1"),
    ("dbrx", 132e9, 36e9, NO_EMBEDDING, HF + "databricks/dbrx-base"),
    ("jamba-v0.1", 52e9, 12e9, BOTH, "arXiv 2403.19887"),
    ("mamba-2.8b", 2.768e9, None, BOTH, HF + "state-spaces/mamba-2.8b-hf"),
    ("mamba2-2.7b", 2.70e9, None, BOTH, HF + "state-spaces/mamba2-2.7b"),
    ("nemotron-3-nano-30b-a3b", 31.6e9, 3.58e9, BOTH, "NVIDIA Nemotron 3 Nano report: 31.6B, 3.6B"),
    ("kimi-linear-48b-a3b", 49.1e9, None, BOTH, HF + "moonshotai/Kimi-Linear-48B-A3B-Base"),
    ("mimo-7b-base", 7.83e9, None, WITH_MTP, HF + "XiaomiMiMo/MiMo-7B-Base"),
    ("mimo-v2-flash", 309e9, 15e9, NO_EMBEDDING, HF + "XiaomiMiMo/MiMo-V2-Flash"),
    ("step-3.7-flash", 196e9, 11e9, BOTH, "name family Step-3.5-Flash: 196B, 11B"),
    ("deepseek-v4-flash", 284e9, 13e9, NO_EMBEDDING, HF + "deepseek-ai/DeepSeek-V4-Flash"),
    ("pangu-ultra-135b", 135e9, None, BOTH, "arXiv 2504.07866"),
    ("pangu-ultra-moe-718b", 718e9, 39e9, NO_EMBEDDING, "arXiv 2505.04519"),
    ("pangu-pro-moe-72b", 71.99e9, 16.50e9, BOTH, "arXiv 2505.21411"),
)  # fmt: skip
ROUNDED = {
    # counts printed with one or two figures: off by more than 1 % because of the print, not of us
    "mixtral-8x7b-v0.1", "qwen3-30b-a3b", "deepseek-v2", "qwen3-235b-a22b", "deepseek-v3",
    "kimi-k2-instruct", "qwen3-coder-480b-a35b", "glm-4.5", "glm-5", "llama-4-maverick-17b-128e",
    "llama-4-scout-17b-16e-instruct", "minimax-m2.5", "dbrx", "jamba-v0.1",
    "mimo-v2-flash", "step-3.7-flash", "deepseek-v4-flash", "pangu-ultra-moe-718b",
}  # fmt: skip


def test_totals_and_active_counts_within_one_percent_of_published() -> None:
    rows = []
    for name, total, active, convention, source in PUBLISHED:
        counted = parameters(load_model(name), convention)
        rows.append((name, counted.total / total - 1, source))
        if active and name not in ROUNDED:
            rows.append((name + " active", counted.active / active - 1, source))
    bad = [row for row in rows if abs(row[1]) > 0.01]
    assert not bad
    assert len({row[0] for row in rows}) >= 60


def test_rounded_active_counts_round_to_what_is_printed() -> None:
    for name, _, active, convention, _ in PUBLISHED:
        if active and name in ROUNDED:
            counted = parameters(load_model(name), convention).active
            assert abs(counted / active - 1) < 0.035, (name, counted, active)


def test_gpt2_is_exact_to_the_last_parameter() -> None:
    assert parameters(load_model("gpt2")).total == 124_439_808
    assert parameters(load_model("gpt2-xl")).total == 1_557_611_200
    assert parameters(load_model("llama-3.1-8b")).total == 8_030_261_248
    assert parameters(load_model("deepseek-v3")).total == pytest.approx(671_026_419_200, rel=1e-6)


@pytest.mark.parametrize("name", names("models"))
def test_parts_add_up(name: str) -> None:
    model: Model = load_model(name)
    counted = parameters(model)
    assert counted.experts_active <= counted.experts
    assert 0 < counted.active <= counted.total
    assert parameters(model, BODY).total == counted.total - counted.embedding - counted.head
    assert parameters(model, WITH_MTP).total == counted.total + counted.mtp
    assert bool(counted.mtp) == bool(model.mtp_layers)
    assert "MTP out" in counted.convention.text


def test_size_alone_meets_its_size() -> None:
    for text, size in (
        ("350M", 350e6),
        ("7B", 7e9),
        ("70B", 70e9),
        ("1.5T", 1.5e12),
        ("10T", 1e13),
    ):
        assert parameters(load_model(text)).total == pytest.approx(size, rel=0.01)
