"""Masks credentials in a text; the rest can be shown to anybody who may see the run."""

from __future__ import annotations

from itertools import pairwise

from grpo_watch import lazy_re as re

HIDDEN = "***"

_USER_INFO = re.compile(r"://[^/\s@]{0,256}@")
"""``https://user:password@host``; clients reject a password with a slash in it."""
_QUERY = re.compile(r"(?<=[?&;])([\w.%~-]{1,64})=[^\s'\"&<>]{1,2000}")
_HOOK = re.compile(
    r"(?i)(hooks\.slack\.com/(?:services|workflows|triggers)/|discord(?:app)?\.com/api/webhooks/|/bot/v2/hook/|"
    r"webhook\.office\.com/|api\.telegram\.org/bot)[^\s'\"<>]{8,2000}"
)
"""Webhook addresses, at which everybody who knows them can post."""
_COMMAND = re.compile(
    r"(\b(?:wandb|swanlab) login (?:--?[\w-]{1,20} ){0,3}|"
    r"\bcurl [^\n]{0,300}?(?:-u|--user)[ =]?['\"]?[^\s:'\"]{1,64}:)[^\s'\"]{4,400}"
)
"""Commands that take a key, or a user and a password, without a name."""
_KEY_BLOCK = re.compile(
    r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----(?:[^-]|-(?!----)){0,16000}(?:-----END [A-Z ]{0,40}-----)?"
)
"""Up to the next five dashes, so that no part of the text is searched twice."""

_NAME = re.compile(
    r"(?i)(?=[abckpstuw密口令])(?P<name>token|(?:api[ _-]?)?key|secret|passw(?:or)?[dt]|passphrase|pwd|pat|"
    r"(?-i:(?<=_)PASS)|credentials?|connection[_-]?string|webhook[_-]?url|use_wandb|authorization|cookie|sig(?:nature)?|bearer|"
    r"kennwort|密码|口令|密钥|令牌)"
    r"(?P<sign>(?:\\?['\"])?\s{0,3}(?:=>|[=:：])\s{0,3}|\\?['\"],\s{1,3}|(?:\s(?:is|was|provided|given))?:?\s{1,3})"
    r"(?P<quote>(?:\\?['\"])?)(?:(?:bearer|basic|token)\s{1,3})?"
)
"""The possible name of a credential, the separator before its value, and the scheme of a header."""
_SHORT = frozenset({"pat", "pwd", "sig"})
_UNSURE = frozenset({"token", "key", "signature", "bearer", *_SHORT})
"""Words with other meanings in logs, too."""
_OF_TOKENIZERS = frozenset(
    (
        *("pad", "eos", "bos", "unk", "sep", "cls", "mask", "stop", "special", "additional", "fim", "think"),
        *("image", "video", "audio", "begin", "end", "start", "first", "last", "next", "new", "prev", "previous"),
        *("prompt", "response", "completion", "sampled", "target", "generated", "each", "per"),
    )
)
"""``eos_token`` and the like are tokenizer terms."""
_KEYS = (
    *("api", "access", "account", "private", "signing", "encryption", "secret", "master"),
    *("license", "shared", "subscription", "storage", "ssh", "deploy"),
)
"""Names that make a ``key`` a credential: ``access_key``."""
_SERVICES = frozenset(
    (
        *("wandb", "swanlab", "comet", "neptune", "mlflow", "trackio", "clearml", "hf", "huggingface", "modelscope"),
        *("openai", "azure", "anthropic", "claude", "gemini", "google", "gcp", "aws", "groq", "mistral", "cohere"),
        *("deepseek", "dashscope", "qwen", "together", "replicate", "fireworks", "openrouter", "nvidia", "serper"),
        *("tavily", "runpod", "login", "judge", "llm"),
    )
)
"""Services whose ``key`` is a credential, whatever its value."""
_OF_ACCESS = frozenset({"hub", "hf", "auth", "access", "api", "refresh", "session", "secret", "wandb", "swanlab"})
"""Names that make a ``token`` a credential."""
_COLUMNS = frozenset(
    (
        *("prompt", "response", "completion", "question", "answer", "input", "output", "label", "image", "video"),
        *("dataset", "column", "dict", "reward", "score", "metric", "fn", "sort", "group", "primary", "foreign"),
        *("cache", "hash", "public", "host"),
    )
)
"""Names of a ``key`` that is not secret: ``prompt_key`` and ``best_metric_key`` name columns, ``cache_key`` a checksum.
Other keys are judged by their value."""
_OF_NAMES = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"
_LONGEST_PREFIX = 40
_BEGINS_LINE = re.compile(r"(?:^|\n)\s{0,40}(?:- )?\Z")
_NOTHING = re.compile(
    r"(?:None|null|true|True|false|False|<(?:[A-Z_-]{1,64}|(?:your|my)[a-z_-]{0,60})>|\$[A-Z_]{1,64})"
    r"(?![^\s'\",;&)}\]])|\$[{(]"
)
"""Values that are no secret: empty, a placeholder, or a variable."""
_NO_TOKEN = re.compile(r"[<\[|(]|-?\d{1,9}(?:\.\d{1,20})?(?:e[+-]?\d{1,3})?(?![^\s'\",;&)}\]])")
"""A special token (``<|im_end|>``, ``[PAD]``), or its number."""
_GENERATED = re.compile(r"(?=[\w.~+/=-]{0,64}\d)(?=[\w.~+/=-]{0,64}[A-Za-z])[\w~+=][\w.~+/=-]{9}")
_MIXED = re.compile(
    r"(?=[\w.~+/=!@#$%^&*-]{0,64}\d)(?=[\w.~+/=!@#$%^&*-]{0,64}[A-Za-z])[\w~+=!@#$%^&*][\w.~+/=!@#$%^&*-]{5}"
)
"""A weaker sign suffices after a name with one meaning only (``password hunter2``)."""
_HEXADECIMAL = re.compile(r"[0-9a-fA-F]{32,}")
_LONG = re.compile(r"[\w.~+/=-]{16}")
_VALUE = re.compile(r"[^\s'\",;&)}\]]{4,2000}")
_QUOTED = {quote: re.compile(rf"[^\n{quote}]{{4,2000}}(?={quote})") for quote in "'\""}
_REST = re.compile(r"[^\n'\"]{4,2000}")

_PREFIXES = (
    *("hf_", "api_org_", "wandb_v1_", "nvapi-", "gsk_", "pplx-", "r8_", "xai-", "tgp_v1_", "lsv2_"),  # models
    *("sk-", "sess-", "sk_live_", "sk_test_", "rk_live_", "rk_test_", "whsec_"),  # OpenAI, Anthropic, Stripe
    *("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"),
    *("glpat-", "glrt-", "gldt-", "glptt-", "glcbt-", "ATATT3", "ATBB"),  # GitLab, Atlassian
    *("npm_", "pypi-", "dckr_pat_", "dckr_oat_", "rubygems_"),  # package registries
    *("xoxa-", "xoxb-", "xoxc-", "xoxd-", "xoxe-", "xoxe.", "xoxp-", "xoxr-", "xoxs-", "xapp-"),  # Slack
    *("AKIA", "ASIA", "AIza", "GOCSPX-", "ya29.", "LTAI", "AKLT", "AGE-SECRET-KEY-1"),  # clouds
    *("dop_v1_", "doo_v1_", "hvs.", "hvb.", "SG.", "shpat_", "shpss_", "lin_api_", "figd_", "PMAK-", "tfp_", "glsa_"),
    *("glc_", "dp.pt.", "dp.st.", "ntn_", "sbp_", "pscale_tkn_", "sntrys_", "NRAK-", "pul-", "tskey-", "HRKU-", "rpa_"),
)
"""Documented prefixes of tokens."""
_SHAPED = re.compile(
    r"(?<![\w-])(?!(?:hf_|(?:sk-|npm_|pypi-|pul-|rpa_|sess-|glc_)[a-z]{1,11}[_-])[a-z]{1,11}(?:[_-][a-z]{1,11}){0,9}(?![\w-]))"
    rf"(?:(?:{'|'.join(map(re.escape, _PREFIXES))})[\w-][\w.-]{{6,300}}[\w-]|(?:dapi|SK)[0-9a-zA-Z]{{32}}|"
    r"eyJ[\w-]{10,2000}\.[\w.-]{10,2000}|\d{8,10}:AA[\w-]{30,40})(?![\w-])"
)
"""Also tokens of Databricks (``dapi…``) and Twilio, signed web tokens (``eyJ…``) and tokens of Telegram bots.

Words of code and prose with the same beginning don't match: ``hf_hub_download``, ``sk-learn-based``.
"""
_OPAQUE = re.compile(r"(?<![\w/+.=-])[A-Za-z0-9+/=_-]{24,200}(?![\w/+.-])")
_UUID = re.compile(r"(?i)[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_DIGITS = re.compile(r"\d+")
_LEAST_OF_EACH, _LEAST_CHANGES = 2, 0.45
"""Least number of capitals, small letters and groups of digits each; least share of neighbours of different kinds.

Of 20,000 drawn base-62 words of 32 characters, one in 15 has less; of the names in 250 MB of code and logs, three had
as much.
"""
_LONGEST_PLAIN = 23


def masked(text: str) -> str:
    """The text with ``***`` for passwords of URLs, values of their queries, and tokens by name, shape or randomness.

    Masked are named values (``--token X``, ``{"token": "X"}``, ``password=X``), tokens with a documented prefix,
    private keys, and as a last resort words of 24 characters and more that are as random as a key. Hexadecimal words
    stay: checksums and commits are evidence. A short secret without a telling name, place or shape can't be recognised.
    Time is linear in the text.
    """
    if "PRIVATE KEY" in text:
        text = _KEY_BLOCK.sub(HIDDEN, text)
    if "://" in text:
        text = _QUERY.sub(rf"\1={HIDDEN}", _USER_INFO.sub(f"://{HIDDEN}@", text))
        text = _HOOK.sub(rf"\1{HIDDEN}", text)
    if "curl" in text or "login" in text:
        text = _COMMAND.sub(rf"\1{HIDDEN}", text)
    pieces, done = list[str](), 0
    for found in _NAME.finditer(text):
        if found.start() >= done and (end := _end_of_secret(text, found)):
            pieces += (text[done : found.end()], HIDDEN)
            done = end
    text = _SHAPED.sub(HIDDEN, "".join(pieces) + text[done:])
    return (
        _OPAQUE.sub(lambda word: HIDDEN if _random(word[0]) else word[0], text) if len(text) > _LONGEST_PLAIN else text
    )


def _end_of_secret(text: str, found: re.Match[str]) -> int:
    """The end of the value behind a name; 0 if it is no credential."""
    at, name, sign = found.end(), found["name"].lower(), found["sign"]
    before = text[max(0, found.start() - _LONGEST_PREFIX) : found.start()]
    prefix = before[len(before.rstrip(_OF_NAMES)) :]
    flag, kinds = prefix.startswith("-"), prefix.lower().replace("-", "_").strip("_").split("_")
    kind = "login" if before.endswith("login(") else kinds[-1]
    column, sure = name == "key" and kind in _COLUMNS, name not in _UNSURE or (name == "token" and kind in _OF_ACCESS)
    if name == "key" and not column:
        sure = kind.endswith(_KEYS) or not _SERVICES.isdisjoint((kind, *kinds)) or (flag and not kind)
    if (name == "token" and kind in _OF_TOKENIZERS) or (name in _SHORT and prefix[-1:].isalnum()):
        return 0
    if _NOTHING.match(text, at) or (not sure and _NO_TOKEN.match(text, at)):
        return 0
    if name == "pwd" and not kind and text.startswith("/", at):  # the working directory
        return 0
    if "=" in sign:
        assigned = sure or "=>" not in sign
    elif (":" in sign or "：" in sign) and sign[:1] != " ":
        assigned = sure or sign[0] != ":" or bool(prefix) or _BEGINS_LINE.search(before) is not None
    else:
        assigned = flag and not text.startswith("-", at)
    generated = (_MIXED if sure else _GENERATED).match(text, at) or (name == "bearer" and _LONG.match(text, at))
    if not generated and (not assigned or name in ("sig", "signature", "bearer")):
        return 0
    quote = found["quote"][-1:]
    value = _QUOTED[quote].match(text, at) if quote else None
    value = value or (_REST if name == "cookie" else _VALUE).match(text, at)
    if value is None or column:
        return 0
    drawn = sure or name != "key" or _random(value[0]) or (kind and _HEXADECIMAL.fullmatch(value[0]))
    return value.end() if drawn else 0  # a hexadecimal ``key`` without a kind is a checksum


def _random(word: str) -> bool:
    """Whether a word is as random as a generated key; names in code have their capitals and digits in few places."""
    kinds = ["a" if each.islower() else "A" if each.isupper() else each.isdigit() for each in word]
    if min(kinds.count("a"), kinds.count("A"), len(_DIGITS.findall(word))) < _LEAST_OF_EACH or _UUID.search(word):
        return False
    sides = [one != other for one, other in pairwise(kinds) if one and other]
    return sum(sides) >= _LEAST_CHANGES * len(sides)
