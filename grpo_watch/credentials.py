"""Takes out of a text what looks like a credential; what is left can be shown to anybody who may see the run."""

from __future__ import annotations

from collections import Counter
from math import log2

from grpo_watch import lazy_re as re

HIDDEN = "***"

_USER_INFO = re.compile(r"://[^/\s@]{0,256}@")
"""``https://user:password@host``; a password with a slash in it is no URL that a client would take."""
_QUERY = re.compile(r"(?<=[?&])([\w.%~-]{1,64})=[^\s'\"&<>]{1,2000}")
_NAMED = re.compile(
    r"(?i)(?!(?<![\w-])(?:secret|credentials?|authorization)"
    r" (?-i:[a-z]{4,12})(?![^\s.,;:!?)\]]))"
    r"((?:(?:hub|hf|auth|access|api|wandb|swanlab|bearer|secret|refresh|session)[_-]?token|api[_-]?key|"
    r"(?:access|account|private|signing|encryption)[_-]?key|connection[_-]?string|webhook[_-]?url|"
    r"secret(?:[_-]?(?:access[_-]?)?key)?|passw(?:or)?d|passphrase|credentials?|use_wandb|authorization)"
    r"['\"]?\s{0,3}[=:\s]\s{0,3}['\"]?(?:(?:bearer|basic|token)\s{1,3})?)[^\s'\",;&)}\]]{4,2000}"
)
"""A value by a name that says what it is: ``hub_token='…'``, ``Authorization: Bearer …``, ``--use_wandb KEY``.

In prose ("the secret number", "authorization failed") the next word is none.
"""
_FLAG = re.compile(
    r"(?i)((?<!\S)--?(?:[a-z]{1,20}[_-])?(?:token|key|pat|pwd)(?:=|\s{1,3})['\"]?)[^\s'\"-][^\s'\"]{3,2000}"
)
"""``--token VALUE``: on a command line the name alone is enough."""
_QUOTED = re.compile(
    r"""(?i)((['"])(?:[a-z]{1,20}[_-])?(?:token|pat|pwd)\2\s{0,3}:\s{0,3}(['"]))(?![<\[|])[^'"\s]{6,2000}(?=\3)"""
)
"""``{"token": "VALUE"}``; a special token of a tokenizer (``<|im_end|>``, ``[PAD]``) is none."""
_BEARER = re.compile(
    r"(?i)(\bbearer\s{1,3}|(?<![\w-])(?:[a-z]{1,20}_)?(?:token|pat|pwd)['\"]?[=:]\s{0,3}['\"]?)[\w.~+/=-]{16,2000}"
)
"""A name that is also that of a tokenizer's words: only with a value that is longer than those."""
_KEY_BLOCK = re.compile(
    r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----.{0,8000}?(?:-----END [A-Z ]{0,40}-----|\Z)", re.DOTALL
)
_PREFIXES = (
    *("hf_", "api_org_", "wandb_v1_", "nvapi-", "gsk_", "pplx-", "r8_"),  # models: Hugging Face, Weights & Biases …
    *("sk-", "sk_live_", "sk_test_", "rk_live_", "whsec_"),  # OpenAI, Anthropic, Stripe
    *("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "glrt-", "gldt-"),  # GitHub, GitLab
    *("npm_", "pypi-", "dckr_pat_", "rubygems_"),  # package registries
    *("xoxa-", "xoxb-", "xoxc-", "xoxd-", "xoxe-", "xoxp-", "xoxr-", "xoxs-", "xapp-"),  # Slack
    *("AKIA", "ASIA", "AIza", "GOCSPX-", "ya29."),  # AWS, Google
    *("dop_v1_", "hvs.", "SG.", "shpat_", "lin_api_", "figd_", "PMAK-", "tfp_", "glsa_", "dp.pt.", "ntn_"),
)
"""The beginnings that issuers document for their tokens."""
_SHAPED = re.compile(
    r"(?<![\w-])(?!(?:hf_|sk-|npm_|pypi-)[a-z]{1,11}(?:[_-][a-z]{1,11}){1,9}(?![\w-]))"
    rf"(?:(?:{'|'.join(map(re.escape, _PREFIXES))})[\w-][\w.-]{{6,300}}[\w-]|(?:dapi|SK)[0-9a-zA-Z]{{32}}|"
    r"eyJ[\w-]{10,2000}\.[\w.-]{10,2000}|\d{8,10}:AA[\w-]{30,40})(?![\w-])"
)
"""Also tokens of Databricks (``dapi…``) and Twilio, signed web tokens (``eyJ…``) and those of Telegram's bots.

Words of code and prose that only begin so are none: ``hf_hub_download``, ``sk-learn-based``.
"""
_OPAQUE = re.compile(r"(?<![\w/+.=-])[A-Za-z0-9+=]{32,200}(?![\w/+.-])")
_DIGITS = re.compile(r"\d+")
_LEAST_BITS = 4.0
"""Bits a character; of 10,000 drawn base-62 words of 32 characters, ten had 4.05 or less."""
_LEAST_OF_EACH = 3
_NAMES = (
    *("token", "key", "secret", "pass", "pwd", "pat", "credential", "use_wandb", "authorization", "bearer"),
    *("connection", "webhook"),
)
"""One of these is in every text with a named credential; looking for them is faster than the expressions."""
_LONGEST_PLAIN = 31


def masked(text: str) -> str:
    """The text with ``***`` for passwords of URLs, values of their queries, and tokens by name, shape or randomness.

    Named values (``--token X``, ``{"token": "X"}``, ``password=X``), tokens with the beginning that their issuer
    documents, private keys, and as a last resort words of 32 characters and more that are as random as a key.
    Hexadecimal words stay: checksums and commits are evidence. A short secret without a telling name, place or shape
    can't be recognised. Time is linear in the text.
    """
    if "://" in text:
        text = _QUERY.sub(rf"\1={HIDDEN}", _USER_INFO.sub(f"://{HIDDEN}@", text))
    if "PRIVATE KEY" in text:
        text = _KEY_BLOCK.sub(HIDDEN, text)
    lowered = text.lower()
    if any(name in lowered for name in _NAMES):
        for named in (_NAMED, _FLAG, _QUOTED, _BEARER):
            text = named.sub(rf"\1{HIDDEN}", text)
    text = _SHAPED.sub(HIDDEN, text)
    return (
        _OPAQUE.sub(lambda word: HIDDEN if _random(word[0]) else word[0], text) if len(text) > _LONGEST_PLAIN else text
    )


def _random(word: str) -> bool:
    """Whether a word is as random as a generated key; names in code have their digits in one or two places."""
    kinds = (sum(map(str.islower, word)), sum(map(str.isupper, word)), len(_DIGITS.findall(word)))
    if min(kinds) < _LEAST_OF_EACH:
        return False
    shares = [count / len(word) for count in Counter(word).values()]
    return -sum(share * log2(share) for share in shares) >= _LEAST_BITS
