"""Seventy kinds of credentials in eleven ways of writing them leave no trace; what evidence is made of stays."""

from __future__ import annotations

import random
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_watch.credentials import masked

WORDS = string.ascii_letters + string.digits
LONG = ("hf_", "sk-", "sk-proj-", "sk-ant-api03-", "sk-or-v1-", "ghp_", "gho_", "ghs_", "ghu_", "ghr_", "github_pat_")
MIDDLE = ("glpat-", "glrt-", "npm_", "pypi-AgEIcHlwaS5vcmc", "dckr_pat_", "rubygems_", "xoxb-", "xoxp-", "xoxe.xoxp-1-")
MIDDLE = (*MIDDLE, "xapp-", "wandb_v1_", "nvapi-", "gsk_", "pplx-", "xai-", "lsv2_pt_", "rk_live_", "whsec_", "GOCSPX-")
MIDDLE = (*MIDDLE, "AIza", "AKIA", "ASIA", "LTAI", "ATATT3", "tskey-auth-", "sntrys_", "NRAK-", "pul-", "sbp_")
EVEN = ("r8_", "dop_v1_", "hvs.", "ya29.", "SG.", "SK", "shpat_", "lin_api_", "figd_", "dapi", "PMAK-", "glsa_", "glc_")
EVEN = (*EVEN, "dp.pt.", "ntn_", "sk_live_", "AGE-SECRET-KEY-1", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.")
SHAPED = {
    **{f"{prefix}…": (f"{prefix}{{}}", 36) for prefix in LONG},
    **{f"{prefix}…": (f"{prefix}{{}}", 24) for prefix in MIDDLE},
    **{f"{prefix}…": (f"{prefix}{{}}", 32) for prefix in EVEN},
    "bot of Telegram": ("1234567890:AA{}", 33),
    "webhook of Slack": ("https://hooks.slack.com/services/T01/B02/{}", 24),
    "webhook of Discord": ("https://discord.com/api/webhooks/123/{}", 32),
    "webhook of Feishu": ("https://open.feishu.cn/open-apis/bot/v2/hook/{}", 24),
    "password of a URL": ("postgres://ada:{}@db.example:5432/runs", 8),
    "user of a URL": ("https://{}@sentry.example/7", 12),
    "shared access signature": ("https://a.blob.core.windows.net/c?sv=2024-11-04&sig={}", 40),
    "key of a connection string": ("DefaultEndpointsProtocol=https;AccountName=a;AccountKey={}==", 40),
    "private key": ("-----BEGIN EC PRIVATE KEY-----\n{}\n-----END EC PRIVATE KEY-----", 64),
    "by its randomness alone": ("{}", 0),
}
PLAIN = {"password of eight": ("{}", 8), "token of fifteen": ("{}", 15), "key with signs": ("{}+/x==", 24)}
"""These have a place only; the others stand alone in an error, too."""
SYNTAXES = {
    "environment": "export API_TOKEN={}",
    "flag": "train.py --token {} --seed 1",
    "flag with =": "train.py --hub-token={} --seed 1",
    "arguments": "['train.py', '--token', '{}', '--seed', '1']",
    "JSON": '{{"token": "{}", "beta": 0.04}}',
    "JSON in JSON": '{{"config": "{{\\"password\\": \\"{}\\"}}"}}',
    "YAML": "model: m\n  token: {}\nbeta: 0.04",
    "keyword": "Client(token='{}', timeout=3)",
    "header": "X-Auth-Token: {}",
    "scheme": "{{'Authorization': 'Bearer {}'}}",
    "query": "401 for https://h.example/a?token={}&b=1",
}
ALONE = ("RuntimeError: 401 for {}", "{}", "user {} is unknown")


@pytest.mark.parametrize("kind", [*SHAPED, *PLAIN])
@given(data=st.data())
def test_no_kind_shows_in_any_syntax(kind: str, data: st.DataObject) -> None:
    form, length = {**SHAPED, **PLAIN}[kind]
    if length:
        secret = data.draw(st.text(WORDS, min_size=length - 1, max_size=length - 1)) + "x"  # no number
    else:
        parts = [data.draw(st.text(each, min_size=9, max_size=9)) for each in (*2 * (string.ascii_lowercase,), "789")]
        secret = "".join(map("".join, zip(parts[0].upper(), *parts[1:], strict=True)))
    value = form.format(secret)
    for syntax in (*SYNTAXES.values(), *(ALONE if kind in SHAPED else ())):
        shown = masked(syntax.format(value))
        assert secret not in shown
        assert "***" in shown


def test_there_are_enough_of_both() -> None:
    assert len(SHAPED) + len(PLAIN) >= 70
    assert len(SYNTAXES) >= 11


@given(st.text(string.ascii_letters, min_size=4, max_size=20).filter(lambda word: len({*word.lower()}) > 4))
def test_a_telling_name_hides_any_value(secret: str) -> None:
    """Where the name stands before it in one of these ways; what stands around it stays."""
    ways = ("--token {}", "hub_token={}", "password: {}", "Authorization: Token {}", "--api-key {}", "token={}")
    for syntax in (*ways, "token='{}'", '{{"token": "{}"}}', "PGPASSWORD={}", "client_secret: {}", "--pat {}"):
        shown = masked(f"x {syntax.format(secret)} y")
        assert shown == f"x {syntax.format('***')} y"


def test_of_drawn_words_without_a_name_nearly_all_go() -> None:
    """Of the rest, most have fewer than two digits that do not stand together."""
    draw = random.Random(32)
    for length, least in ((24, 830), (32, 920), (40, 960), (64, 990)):
        words = ["".join(draw.choices(WORDS, k=length)) for _ in range(1_000)]
        assert sum(word not in masked(f"x {word} y") for word in words) >= least


def test_a_password_with_spaces_goes_whole() -> None:
    assert masked("login(password='correct horse battery', user='ada')") == "login(password='***', user='ada')"


HEX = "3f1a9c0b7e5d2846a1b3c5d7e9f00112aabbccdd"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"--wandb-key {HEX}", "--wandb-key ***"),
        (f"--wandb_key={HEX}", "--wandb_key=***"),
        (f"WANDB_KEY={HEX}", "WANDB_KEY=***"),
        (f"['--wandb_key', '{HEX}']", "['--wandb_key', '***']"),
        (f"AZURE_OPENAI_KEY={HEX[:32]}", "AZURE_OPENAI_KEY=***"),
        (f"wandb.login(key='{HEX}')", "wandb.login(key='***')"),
        (f"FOO_KEY={HEX}", "FOO_KEY=***"),
        ("--openai-key abcd1234efgh", "--openai-key ***"),
        ("OPENAI_KEY=geheim", "OPENAI_KEY=***"),
        ("--login-key geheim", "--login-key ***"),
        ("hub_token=12345678", "hub_token=***"),
        ("auth_token: <geheim1>", "auth_token: ***"),
        ("password=$Ecret99", "password=***"),
        ("password=<hunter2>", "password=***"),
        ("password hunter2", "password ***"),
        ("password p@ssw0rd!", "password ***"),
        ("api-key hunter2x", "api-key ***"),
        ("-----BEGIN PRIVATE KEY-----" * 3, "***" * 3),
        (f"-----BEGIN PRIVATE KEY-----\n{'Ab3/' * 3_000}\n-----END PRIVATE KEY----- ok", "*** ok"),
    ],
)
def test_what_a_name_or_place_gives_away(text: str, shown: str) -> None:
    """Keys of services, also hexadecimal ones; and what looks like a variable, a placeholder or prose."""
    assert masked(f"x {text}") == f"x {shown}"


def test_all_of_a_cookie_goes() -> None:
    assert masked("Cookie: session=geheim1; other=geheim2") == "Cookie: ***"


@pytest.mark.parametrize(
    "text",
    [
        '{"token": "<|im_end|>", "id": 151645}',
        "{'token': '[PAD]'}",
        'pad_token="<pad>", eos_token_id=2, bos_token=None, unk_token: [UNK], mask_token=mask',
        "tokens=1024, num_tokens: 512, max_new_tokens=2048, token: 42, token=7, chi2_token:0.0010645389556884766",
        "SyntaxError: unexpected token: else, invalid token at position 12",
        "hub_token=None, push_to_hub_token=<PUSH_TO_HUB_TOKEN>, --token $HF_TOKEN, api_key: null, secret: False",
        "--prompt-key question --label_key answer --input_key prompt reward_fn_key=data_source key: metrics/reward",
        "KeyError: 'reward' (missing key model.layers.27.self_attn.q_proj.lora_A.default.weight)",
        "model.layers.0.mlp.experts.127.down_proj.weight_scale_inv",
        f"cache_key={HEX} --sort-key {HEX[:32]} key='{HEX}' best_metric_key=val/Acc1Gsm8kAt2Xy",
        "pwd=/workspace/exp12 PWD=/workspace/exp12, password=<YOUR_PASSWORD> password=${PW} HF_TOKEN=$HF_TOKEN",
        "usage: train.py --token ",
        "commit 7ae557604adf67be50417f59c2c2f167def9a775",
        "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        "xxh3 f3d1c0de5a7b4e21 of checkpoint-1200, crc32c 0x8a9136aa, run 3f2a9c4e5d6b",
        "run 0b7c1a52-9c1e-4f0e-8d3a-2f6f1c9e7ab4 on GPU-25456b8d-42e2-fb9e-3148-535f43f3bb16",
        "step 300/2000, epoch 0.52, loss 1.2345678901234567e-05, 2026-11-24T10:11:12.123456+00:00",
        "Qwen/Qwen2.5-0.5B-Instruct, deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B, meta-llama/Llama-3.2-1B",
        "Qwen2MoeForCausalLMWithValueHeadAndRouterReplay2026",
        "Qwen3-8B-GRPO-20261124-lr1e6-beta004-G8-seed42",
        "DAPO-Qwen2.5-32B-8k-clip_higher0.28-token_level-v7",
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu",
        "checkpoint-300/model-00001-of-00004.safetensors",
        "/data/runs/Qwen2.5-7B-GRPO-2026-11-24-lr1e-6-beta0.04-G8/checkpoint-1200",
        "events.out.tfevents.1764240000.node7.12345.0, slurm-8812345_12.out, wandb/run-20261124_101112-a1b2c3d4",
        "0123456789012345678901234567890123456789",
        "skip the key metrics: kl, reward",
        "sk-learn and hf_hub are packages; hf_tokenizer, hf_argparser.py and hf_revision are names",
        "path = hf_hub_download(repo), an sk-learn-based pipeline, npm_config_registry",
        "the secret number is 17, so secret=17; authorization failed, password incorrect, bearer token expired",
        "https://huggingface.co/Qwen/Qwen2.5-7B/resolve/main/model.safetensors",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has 79.15 GiB",
        "cuda:0 sm_90a nvcc V12.4.131 NCCL 2.21.5+cuda12.4 libcudnn_graph.so.9",
        "compatible=8_9 config=grpo_full, format: bf16_fp32, assign=greedy",
    ],
)
def test_evidence_stays(text: str) -> None:
    assert masked(text) == text
