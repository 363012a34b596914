"""What looks like a credential is taken out of a text; what does not, stays."""

from __future__ import annotations

import pytest

from grpo_watch.credentials import masked


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("https://ada:geheim@hub.example/x", "https://***@hub.example/x"),
        ("https://geheim@hub.example/x", "https://***@hub.example/x"),
        ("401 for url: https://h.example/a?token=geheim&b=geheim", "401 for url: https://h.example/a?token=***&b=***"),
        ("GRPOConfig(hub_token='geheim', beta=0.04)", "GRPOConfig(hub_token='***', beta=0.04)"),
        ('{"wandb_api_key": "geheim", "seed": 1}', '{"wandb_api_key": "***", "seed": 1}'),
        ("WANDB_API_KEY=geheim python train.py", "WANDB_API_KEY=*** python train.py"),
        ("train --use_wandb geheim --seed 1", "train --use_wandb *** --seed 1"),
        ("export HF_TOKEN=geheim", "export HF_TOKEN=***"),
        ("{'Authorization': 'Bearer geheim-7f3a'}", "{'Authorization': 'Bearer ***'}"),
        ("Authorization: Basic Z2VoZWlt", "Authorization: Basic ***"),
        ("header bearer geheim-geheim-geheim ok", "header bearer *** ok"),
        ("token=geheimgeheimgeheim", "token=***"),
        ("Invalid user token hf_geheimgeheim.", "Invalid user token ***."),
        ("key sk-proj-geheimgeheim is wrong", "key *** is wrong"),
        ("AKIAGEHEIMGEHEIM and ghp_geheimgeheim", "*** and ***"),
        ("eyJhbGciOiJIUzI1.eyJzdWIiOiIxMjM0.geheim", "***"),
        ("DB_PASS=geheim", "DB_PASS=***"),
        ("'password' => 'geheim'", "'password' => '***'"),
        ("密码：geheim", "密码：***"),
        ("密钥: geheim", "密钥: ***"),
        ("Passwort: geheim", "Passwort: ***"),
        ("curl -sS --user ada:geheim https://hub.example", "curl -sS --user ada:*** https://hub.example"),
        ("wandb login --relogin 0123456789abcdefgeheim", "wandb login --relogin ***"),
    ],
)
def test_credentials_are_taken_out(text: str, shown: str) -> None:
    assert masked(text) == shown
    assert "geheim" not in shown


@pytest.mark.parametrize(
    "text",
    [
        "ValueError: The global train batch size (8 x 1) must be evenly divisible by the number of generations (6)",
        "RuntimeError: CUDA error: device-side assert triggered",
        "KeyError: 'pad_token'",
        "ValueError: pad_token='<|endoftext|>', eos_token: <|im_end|>",
        "SyntaxError: unexpected token: }",
        "tokens: 1024, num_tokens=390 token_type_ids=[0, 0, 0]",
        "multi-task-instruct-finetune-7b",
        "Qwen/Qwen2.5-0.5B-Instruct",
        "/cache/models--Qwen--Qwen2.5/snapshots/7ae557604adf67be50417f59c2c2f167def9a775",
        "https://huggingface.co/api/models/x",
        "what? a=b, is it? x=1",
        "forward_pass=0.125 second_pass: done",
        "lambda token => token.strip()",
        "密码错误：请重试, 每个 token：0.5",
        "docker run -u 1000:1000 image",
        "wandb: Please login to wandb.ai",
    ],
)
def test_what_is_none_stays(text: str) -> None:
    assert masked(text) == text
