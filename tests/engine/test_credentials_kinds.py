"""Forty kinds of credentials in six ways of writing them leave no trace; what evidence is made of stays."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_watch.credentials import masked

WORDS = string.ascii_letters + string.digits
KINDS = {
    **{f"{prefix}…": (prefix, 36) for prefix in ("hf_", "sk-", "sk-ant-api03-", "ghp_", "gho_", "ghs_", "github_pat_")},
    **{f"{prefix}…": (prefix, 24) for prefix in ("glpat-", "npm_", "pypi-AgEIcHlwaS5vcmc", "dckr_pat_", "rubygems_")},
    **{f"{prefix}…": (prefix, 24) for prefix in ("xoxb-", "xoxp-", "xapp-", "wandb_v1_", "nvapi-", "gsk_", "pplx-")},
    **{f"{prefix}…": (prefix, 32) for prefix in ("r8_", "dop_v1_", "hvs.", "ya29.", "SG.", "SK", "shpat_", "lin_api_")},
    **{f"{prefix}…": (prefix, 32) for prefix in ("figd_", "dapi", "PMAK-", "glsa_", "dp.pt.", "ntn_", "sk_live_")},
    **{f"{prefix}…": (prefix, 24) for prefix in ("rk_live_", "whsec_", "GOCSPX-", "AIza")},
    "AWS": ("AKIA", 16),
    "session of AWS": ("ASIA", 16),
    "signed web token": ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.", 40),
    "bot of Telegram": ("1234567890:AA", 33),
}
SYNTAXES = (
    "RuntimeError: 401 for {}",
    "train.py --token {} --seed 1",
    '{{"token": "{}", "beta": 0.04}}',
    "export API_TOKEN={}",
    "Client(token='{}', timeout=3)",
    "token: {}",
)


@pytest.mark.parametrize("syntax", SYNTAXES)
@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_no_kind_shows_in_any_syntax(kind: str, syntax: str, data: st.DataObject) -> None:
    prefix, length = KINDS[kind]
    secret = prefix + data.draw(st.text(WORDS, min_size=length, max_size=length))
    assert secret[len(prefix) :] not in masked(syntax.format(secret))


@given(st.text(WORDS, min_size=4, max_size=20).filter(lambda word: len({*word}) > 3))
def test_a_telling_name_hides_any_value(secret: str) -> None:
    for syntax in ("--token {}", "hub_token={}", "password: {}", "Authorization: Token {}", "--api-key {}"):
        shown = masked(f"x {syntax.format(secret)} y")
        assert shown == f"x {syntax.format('***')} y"


@pytest.mark.parametrize("syntax", ['{{"token": "{}"}}', "{{'auth_token': '{}'}}"])
def test_in_a_dictionary(syntax: str) -> None:
    assert masked(syntax.format("geheim")) == syntax.format("***")


def test_a_private_key_goes_whole() -> None:
    block = "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\nIBAAKC\n-----END RSA PRIVATE KEY-----"
    assert masked(f"read {block} done") == "read *** done"


def test_a_random_word_without_a_name() -> None:
    """Drawn once: 40 letters and digits."""
    assert masked("key-less 7fK2pQ9zLmX4vB8nRt3Wc6Yh1Jd5Gs0AeUoTiPk2 ends") == "key-less *** ends"


@pytest.mark.parametrize(
    "text",
    [
        '{"token": "<|im_end|>", "id": 151645}',
        "{'token': '[PAD]'}",
        "commit 7ae557604adf67be50417f59c2c2f167def9a775",
        "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        "Qwen2MoeForCausalLMWithValueHeadAndRouterReplay2026",
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu",
        "checkpoint-300/model-00001-of-00004.safetensors",
        "0123456789012345678901234567890123456789",
        "skip the key metrics: kl, reward",
        "sk-learn and hf_hub are packages",
        "path = hf_hub_download(repo), an sk-learn-based pipeline, npm_config_registry",
        "the secret number is 17, so secret=17; authorization failed",
        "/data/runs/Qwen2.5-7B-GRPO-2026-11-24-lr1e-6-beta0.04-G8/checkpoint-1200",
    ],
)
def test_evidence_stays(text: str) -> None:
    assert masked(text) == text
