"""Claims against physics: the articles' and a user's."""

from __future__ import annotations

from pathlib import Path

import pytest

from lightloom.core.catalog import load_cluster
from lightloom.core.errors import InputError
from lightloom.fabric.audit import ARTICLES, CHECKS, Claim, audit_cluster, audit_file, judge


def test_verdicts_on_the_articles() -> None:
    verdict = {j.id: j.verdict for j in audit_file(str(ARTICLES))}
    impossible = {
        "twice-as-fast", "order-n-squared", "ring-path-17-22", "temperature-0.3C", "one-band",
        "ber-1e-15", "aluminium-200GPa", "conductivity-1e5", "volume-1.2MW", "power-146W",
        "gradients-100GB", "natural-frequency-12kHz",
    }  # fmt: skip
    assert {k for k, v in verdict.items() if v == "impossible"} == impossible
    assert {k for k, v in verdict.items() if v == "holds"} == {
        "fibres-8", "effective-92.7", "gain-42",
    }  # fmt: skip


def test_arithmetic_is_shown() -> None:
    text = {j.id: j.arithmetic for j in audit_file(str(ARTICLES))}
    assert "14.5%" in text["ring-path-17-22"]
    assert "24 pm" in text["temperature-0.3C"] and "0.062 K" in text["temperature-0.3C"]
    assert "9.60 THz" in text["one-band"]
    assert "10.4 h" in text["ber-1e-15"]
    assert "20 shards" in text["gradients-100GB"]
    assert "81.92 Tb/s" in text["fibres-8"]


def test_every_check_is_used_or_for_clusters() -> None:
    used = {c for c in CHECKS if f'check = "{c}"' in ARTICLES.read_text()}
    assert set(CHECKS) - used == {"port"}


def test_a_sound_claim_holds() -> None:
    values = {"kelvin": 0.05, "metres_per_kelvin": 0.08e-9, "limit_m": 5e-12}
    assert judge(Claim(id="a", text="", check="drift", values=values)).verdict == "holds"


def test_clusters() -> None:
    found = {j.id: j.verdict for j in audit_cluster(load_cluster("supernode-8192"))}
    assert found["spine-band"] == "impossible"
    assert found["spine-fibres"] == "holds"
    assert all(j.verdict == "holds" for j in audit_cluster(load_cluster("dgx-h100")))


def test_bad_files(tmp_path: Path) -> None:
    bad = tmp_path / "claims.toml"
    bad.write_text('[[claims]]\nid = "x"\ntext = "t"\ncheck = "drfit"\nvalues = {}\n')
    with pytest.raises(InputError, match="nearest: drift"):
        audit_file(str(bad))
    bad.write_text('[[claims]]\nid = "x"\ntext = "t"\ncheck = "drift"\nvalues = { kelvin = 1.0 }\n')
    with pytest.raises(InputError, match="needs 'metres_per_kelvin'"):
        audit_file(str(bad))
    bad.write_text("nonsense")
    with pytest.raises(InputError):
        audit_file(str(bad))
