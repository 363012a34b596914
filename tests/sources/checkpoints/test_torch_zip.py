"""Files of torch.save are read without unpickling: hand-written archives, honest and malicious."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from grpo_watch.engine.records import TensorDigest
from grpo_watch.errors import TensorFileError
from grpo_watch.sources.checkpoints.extents import WHOLE_FILE, Extent
from grpo_watch.sources.checkpoints.tensor_layout import MAX_MEMBERS, read_layout
from tests.support import torch_file as torch
from tests.support.process import PATIENCE
from tests.support.tensors import digest, refusal

WEIGHT = np.arange(12, dtype=np.float32).reshape(3, 4)
BIAS = np.array([1.5, -2.0, np.nan], np.float16)
BITS = np.array([0x3F80, 0x7FC0], np.uint16)
"""One and NaN as bfloat16."""


def layout(path: Path) -> tuple[Extent, ...]:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return read_layout(descriptor, path.name)
    finally:
        os.close(descriptor)


def checksum(array: np.ndarray[Any, Any]) -> str:
    return str(xxhash.xxh3_128_hexdigest(array.tobytes()))


def test_state_dict(tmp_path: Path) -> None:
    path = torch.state_dict(tmp_path / "m.bin", {"a.weight": WEIGHT, "a.bias": BIAS, "b": BITS})
    assert digest(path) == {
        "a.weight": TensorDigest("F32", (3, 4), checksum(WEIGHT)),
        "a.bias": TensorDigest("F16", (3,), checksum(BIAS), nonfinite=1),
        "b": TensorDigest("BF16", (2,), checksum(BITS), nonfinite=1),
    }


def test_names_are_the_keys_on_the_way(tmp_path: Path) -> None:
    part = torch.tensor("0", WEIGHT)
    body = torch.mapping({"module": torch.ordered({"w": part}), "groups": b"]" + part + b"a", "step": torch.number(3)})
    path = torch.archive(tmp_path / "m.pt", torch.whole(body), {"0": WEIGHT.tobytes()})
    assert digest(path).keys() == {"module.w", "groups.0"}


def test_tied_tensors_share_their_place(tmp_path: Path) -> None:
    parts = torch.ordered({"embed": torch.tensor("0", WEIGHT), "head": torch.tensor("0", WEIGHT)})
    path = torch.archive(tmp_path / "m.pt", torch.whole(parts), {"0": WEIGHT.tobytes()})
    embed, head = layout(path)
    assert (embed.start, embed.end) == (head.start, head.end)
    assert len({one.checksum for one in digest(path).values()}) == 1


def test_half_a_surrogate_pair_in_a_name_is_written_out(tmp_path: Path) -> None:
    """Python pickles such a text, but nobody can print it or put it into JSON."""
    half = b"X\x04\x00\x00\x00a\xed\xa0\x80"
    parts = torch.named("collections.OrderedDict") + b")R" + half + torch.tensor("0", WEIGHT) + b"s"
    path = torch.archive(tmp_path / "m.pt", torch.whole(parts), {"0": WEIGHT.tobytes()})
    assert [extent.name for extent in layout(path)] == ["a\\ud800"]


def test_views_into_one_storage(tmp_path: Path) -> None:
    """The second row, and the transposed matrix, of one storage."""
    row = torch.tensor("0", WEIGHT, shape=(4,), strides=(1,), offset=4, count=12)
    turned = torch.tensor("0", WEIGHT, shape=(4, 3), strides=(1, 4), count=12)
    path = torch.archive(
        tmp_path / "m.pt", torch.whole(torch.ordered({"row": row, "turned": turned})), {"0": WEIGHT.tobytes()}
    )
    found = digest(path)
    assert found["row"].checksum == checksum(WEIGHT[1])
    assert found["turned"].shape == (4, 3)
    assert found["turned"].checksum == xxhash.xxh3_128_hexdigest(WEIGHT.tobytes() + b"((4, 3), (1, 4))")


def test_parameters_and_old_tensors(tmp_path: Path) -> None:
    inner = torch.tensor("0", WEIGHT)
    old = torch.called(
        "torch._utils._rebuild_tensor",
        torch.storage("0", "FloatStorage", 12),
        torch.number(0),
        torch.sizes((12,)),
        torch.sizes((1,)),
    )
    parts = {"p": torch.called("torch._utils._rebuild_parameter", inner, b"\x88", torch.ordered({})), "old": old}
    path = torch.archive(tmp_path / "m.pt", torch.whole(torch.ordered(parts)), {"0": WEIGHT.tobytes()})
    assert {name: one.shape for name, one in digest(path).items()} == {"p": (3, 4), "old": (12,)}


@pytest.mark.parametrize(
    ("placements", "replicated"),
    [(("Shard",), False), (("Replicate",), True), (("Replicate", "Shard"), False), (("Replicate", "Replicate"), True)],
)
def test_distributed_tensors(tmp_path: Path, placements: tuple[str, ...], replicated: bool) -> None:  # noqa: FBT001
    path = torch.state_dict(tmp_path / "m.pt", {"w": WEIGHT}, placements)
    (extent,) = layout(path)
    assert (extent.name, extent.shape, extent.replicated) == ("w", (3, 4), replicated)
    assert digest(path)["w"].checksum == checksum(WEIGHT)


def test_tensor_without_elements(tmp_path: Path) -> None:
    """ZeRO-3 leaves such placeholders."""
    path = torch.state_dict(tmp_path / "m.pt", {"w": np.zeros((0,), np.float32)})
    assert digest(path)["w"].elements == 0


def test_file_in_the_legacy_format_is_one_piece(tmp_path: Path) -> None:
    path = tmp_path / "m.pt"
    path.write_bytes(b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.rest")
    assert digest(path) == {"m.pt": TensorDigest(WHOLE_FILE, (19,), xxhash.xxh3_128_hexdigest(path.read_bytes()))}


def test_pickle_that_is_no_file_of_torch(tmp_path: Path) -> None:
    (tmp_path / "m.bin").write_bytes(b"cos\nsystem\n(S'false'\ntR.")
    assert "no file of torch.save" in refusal(tmp_path / "m.bin")


class Canary:
    """Would be seen if anything in a file were run."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "it-was-run"

    @property
    def command(self) -> bytes:
        return torch.text(f"touch {self.path}")


def malicious(canary: Canary) -> dict[str, bytes]:
    run = torch.called("os.system", canary.command)
    nested = torch.ordered({"w": torch.called("torch._utils._rebuild_parameter", run, b"\x88", torch.ordered({}))})
    memo = (
        torch.text("os")
        + b"q\x00"
        + torch.text("system")
        + b"q\x01"
        + b"00"
        + b"h\x00h\x01\x93"
        + torch.group(canary.command)
        + b"R"
    )
    state = torch.ordered({}) + torch.mapping({"x": run}) + b"b"
    hooked = torch.tensor("0", WEIGHT)[: -len(torch.ordered({}) + b"tR")] + run + b"tR"
    return {
        "reduce": run,
        "posix": torch.called("posix.system", canary.command),
        "builtin": torch.called("builtins.eval", canary.command),
        "getattr": torch.called("builtins.getattr", torch.named("collections.OrderedDict"), torch.text("__init__")),
        "nested": nested,
        "stack global from the memo": memo,
        "state": state,
        "backward hook": hooked,
        "old instance": torch.MARK + canary.command + b"ios\nsystem\n",
        "object": torch.MARK + torch.named("collections.OrderedDict") + canary.command + b"o",
        "new object": torch.named("subprocess.Popen") + torch.group(canary.command) + b"\x81",
        "storage class": torch.group(
            torch.text("storage"), torch.named("os.system"), torch.text("0"), torch.text("cpu"), torch.number(1)
        )
        + b"Q",
        "extension": b"\x82\x01",
        "module of torch": torch.called("torch.load", canary.command),
        "dotted": torch.named("torch.storage.os.system"),
        "reached through another module": (
            torch.text("torch.serialization") + torch.text("os.system") + b"\x93" + torch.group(canary.command) + b"R"
        ),
        "built-in reached through another module": torch.called("torch.serialization.builtins.exec", canary.command),
        "control characters in the name": b"cos\x07\nsystem\n",
    }


ASKED_FOR = {"posix": "posix.system", "builtin": "builtins.eval", "new object": "subprocess.Popen"}
ASKED_FOR |= {
    "dotted": "torch.storage.os.system",
    "reached through another module": "torch.serialization.os.system",
    "built-in reached through another module": "torch.serialization.builtins.exec",
}
"""What is reported to be asked for; by all others, os.system."""
LEFT_ALONE = {
    "getattr": "holds more than tensors, left out: builtins.getattr",
    "module of torch": "holds more than tensors, left out: torch.load",
    "object": "not read: pickle opcode OBJ, which no tensor needs; hashed as one piece",
    "extension": "not read: pickle opcode EXT1, which no tensor needs; hashed as one piece",
    "control characters in the name": "",
}
"""What is only not understood, and what is reported of it: a name that nothing calls is nothing at all."""


@pytest.mark.parametrize("case", sorted(LEFT_ALONE))
def test_what_is_not_understood_is_reported_and_not_run(tmp_path: Path, case: str) -> None:
    canary = Canary(tmp_path)
    path = torch.archive(tmp_path / "m.bin", torch.whole(malicious(canary)[case]), {"0": WEIGHT.tobytes()})
    assert remarks(path) == ([f"m.bin: {LEFT_ALONE[case]}"] if LEFT_ALONE[case] else [])
    assert not canary.path.exists()


def remarks(path: Path) -> list[str]:
    reported: list[str] = []
    descriptor = os.open(path, os.O_RDONLY)
    try:
        read_layout(descriptor, path.name, reported)
    finally:
        os.close(descriptor)
    return reported


BESIDE = {
    "numpy.core.multiarray.scalar": torch.called("numpy.core.multiarray.scalar", torch.called("numpy.dtype", b"N")),
    "argparse.Namespace": torch.named("argparse.Namespace") + b")\x81" + torch.mapping({"lr": b"K\x01"}) + b"b",
    "pathlib.PosixPath": torch.called("pathlib.PosixPath", torch.text("/data")),
    "collections.deque": torch.called("collections.deque") + torch.MARK + b"K\x01K\x02e",
    "a method": torch.called("builtins.getattr", b"K\x01", torch.text("bit_length")) + b")R",
}


@pytest.mark.parametrize("name", sorted(BESIDE))
def test_objects_beside_tensors_are_left_out(tmp_path: Path, name: str) -> None:
    """The tensors are read one by one, and what else the file holds is named."""
    body = torch.mapping({"client": BESIDE[name], "w": torch.tensor("0", WEIGHT)})
    path = torch.archive(tmp_path / "m.bin", torch.whole(body), {"0": WEIGHT.tobytes()})
    assert {key: one.checksum for key, one in digest(path).items()} == {"w": checksum(WEIGHT)}
    assert remarks(path) == [f"m.bin: holds more than tensors, left out: {name}"]


@pytest.mark.parametrize("where", ["argument", "state"])
def test_object_that_holds_tensors_is_hashed_whole(tmp_path: Path, where: str) -> None:
    """A sparse tensor, a pickled module: which of its tensors are weights is not known."""
    part = torch.tensor("0", WEIGHT)
    held = torch.called("a.Model", part) if where == "argument" else torch.named("a.Model") + b")\x81" + part + b"b"
    path = torch.archive(
        tmp_path / "m.bin", torch.whole(torch.mapping({"m": held, "w": part})), {"0": WEIGHT.tobytes()}
    )
    assert [(name, one.dtype) for name, one in digest(path).items()] == [("m.bin", WHOLE_FILE)]
    assert remarks(path) == ["m.bin: not read: a.Model holds tensors and is not understood; hashed as one piece"]


@pytest.mark.parametrize("case", sorted(malicious(Canary(Path())).keys() - LEFT_ALONE.keys()))
def test_malicious_pickle_is_refused_and_not_run(tmp_path: Path, case: str) -> None:
    canary = Canary(tmp_path)
    path = torch.archive(tmp_path / "pytorch_model.bin", torch.whole(malicious(canary)[case]), {"0": WEIGHT.tobytes()})
    said = f"its pickle asks for {ASKED_FOR.get(case, 'os.system')}, which no tensor needs; no code was executed"
    assert refusal(path) == f"pytorch_model.bin: refused: {said}"
    assert not canary.path.exists()


WATCHED = """
import os, sys
from grpo_watch.errors import TensorFileError
from grpo_watch.sources.checkpoints.tensor_hash import digest_file
from pathlib import Path

RUN = {"pickle.find_class", "os.system", "os.exec", "os.posix_spawn", "os.fork", "subprocess.Popen", "exec", "compile"}
RUN |= {"import", "marshal.loads", "ctypes.dlopen", "socket.connect", "code.__new__", "function.__new__"}
seen, on = [], False

def hook(event, arguments):
    if on and (event in RUN or (event == "open" and arguments[1] not in (None, "r", "rb"))):
        seen.append(event)

def read(path):
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return len(digest_file(descriptor, path.name))
    except TensorFileError as error:
        return str(error)
    finally:
        os.close(descriptor)

sys.addaudithook(hook)
folder = Path(sys.argv[1])
read(folder / "honest.bin")  # imports what it needs
refused = [path for path in sorted(folder.glob("*.bin")) if path.name != "honest.bin"]
read(refused[0])
on = True
answers = [read(path) for path in refused]
on = False
assert sum(isinstance(one, str) for one in answers) == int(sys.argv[2]), answers
print(len(answers), seen)
"""


def test_nothing_at_all_is_run_imported_or_written(tmp_path: Path) -> None:
    """Python's own audit events, while every malicious pickle, a zip bomb and a lying archive are read."""
    torch.state_dict(tmp_path / "honest.bin", {"w": WEIGHT})
    bodies = malicious(Canary(tmp_path))
    for number, body in enumerate(bodies.values()):
        torch.archive(tmp_path / f"malicious-{number:02}.bin", torch.whole(body), {"0": WEIGHT.tobytes()})
    bomb = torch.ordered({"w": torch.tensor("0", WEIGHT, shape=(4_000_000,), strides=(1,), count=4_000_000)})
    torch.archive(tmp_path / "z-bomb.bin", torch.whole(bomb), {"0": bytes(16_000_000)}, zipfile.ZIP_DEFLATED)
    patched(
        torch.state_dict(tmp_path / "z-lie.bin", {"a": WEIGHT, "b": WEIGHT}), ENTRY, 42, struct.pack("<I", 0), number=1
    )
    done = subprocess.run(
        [sys.executable, "-c", WATCHED, tmp_path, str(len(bodies) - len(LEFT_ALONE) + 2)],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert (done.stdout, done.stderr) == (f"{len(bodies) + 2} []\n", "")
    assert not Canary(tmp_path).path.exists()


def test_refusal_says_what_was_asked_for(tmp_path: Path) -> None:
    path = torch.archive(tmp_path / "m.bin", torch.whole(torch.called("os.system", torch.text("true"))), {})
    assert refusal(path) == (
        "m.bin: refused: its pickle asks for os.system, which no tensor needs; no code was executed"
    )


PICKLES = {
    "empty": b"",
    "no end": torch.MARK,
    "two opcodes for nothing": b"\x80\x02tt.",
    "text longer than the file": b"\x80\x02X\xff\xff\xff\x7fabc",
    "frame longer than the file": b"\x80\x04\x95\xff\xff\xff\xff\xff\xff\xff\x7f}.",
    "memo that is not there": b"\x80\x02h\x07.",
    "mark as a value": b"\x80\x02(.",
    "pairs that do not pair": b"\x80\x02}(K\x01u.",
    "item of a number": b"\x80\x02K\x01K\x02K\x03s.",
    "number of 5000 digits": b"\x80\x02I" + b"9" * 5000 + b"\n.",
    "unknown opcode": b"\x80\x02\xfe.",
}


@pytest.mark.parametrize("case", sorted(PICKLES))
def test_damaged_pickle(tmp_path: Path, case: str) -> None:
    path = torch.archive(tmp_path / "m.bin", PICKLES[case], {})
    if case == "frame longer than the file":  # frames are only a hint for readers of streams
        assert digest(path) == {}
    else:
        assert "the pickle is damaged" in refusal(path)


def test_containers_that_contain_themselves(tmp_path: Path) -> None:
    """A dictionary in itself, and 60 pairs that hold the one before twice: 2^60 ways, walked once."""
    loop = b"}q\x00" + torch.text("self") + b"h\x00s" + torch.text("w") + torch.tensor("0", WEIGHT) + b"s"
    bombs = b"}" + b"2\x86" * 60
    path = torch.archive(tmp_path / "m.bin", torch.whole(torch.group(loop, bombs)), {"0": WEIGHT.tobytes()})
    assert digest(path).keys() == {"0.w"}


def test_parts_that_many_objects_share_are_looked_through_once(tmp_path: Path) -> None:
    """1,000 objects and 1,000 dictionaries that are made of one list of 1,000 parts."""
    texts = b"](" + b"K\x01\x85" * 1_000 + b"eq\x00"
    objects = torch.named("argparse.Namespace") + b"h\x00\x85R"
    ordered = torch.named("collections.OrderedDict") + b"h\x00\x85R"
    pickle = torch.whole(torch.group(texts, *[objects] * 1_000, *[ordered] * 1_000, torch.tensor("0", WEIGHT)))
    path = torch.archive(tmp_path / "m.bin", pickle, {"0": WEIGHT.tobytes()})
    calls = 0

    def count(_: object, event: str, __: object) -> None:
        nonlocal calls
        calls += event == "c_call"

    sys.setprofile(count)
    try:
        tensors = layout(path)
    finally:
        sys.setprofile(None)
    assert [tensor.name for tensor in tensors] == ["2001"]
    assert calls < 400_000  # of built-in functions, for 15,000 opcodes; a million at least where each looks itself


def many_settings(count: int) -> bytes:
    return torch.whole(torch.mapping({"args": b"](" + b"}" * count + b"e", "w": torch.tensor("0", WEIGHT)}))


@pytest.mark.slow
def test_a_pickle_has_opcodes_in_proportion_to_its_storages(tmp_path: Path) -> None:
    """A byte each, and an object of a hundred: 400,000 beside one storage are no checkpoint."""
    few = torch.archive(tmp_path / "few.bin", many_settings(1_000), {"0": WEIGHT.tobytes()})
    assert [tensor.name for tensor in layout(few)] == ["w"]
    path = torch.archive(tmp_path / "m.bin", many_settings(400_000), {"0": WEIGHT.tobytes()})
    assert [tensor.dtype for tensor in layout(path)] == [WHOLE_FILE]
    assert remarks(path) == ["m.bin: not read: more than 302,400 pickle opcodes beside 4 members; hashed as one piece"]


@pytest.mark.parametrize("placements", [(), ("Shard",), ("Shard", "Replicate")])
def test_what_a_tensor_takes_is_granted_to_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, placements: tuple[str, ...]
) -> None:
    """With next to nothing granted to all of them together."""
    monkeypatch.setattr("grpo_watch.sources.checkpoints.pickle_opcodes.BASE_OPCODES", 10)
    tensors = {f"layers.{number}.w": WEIGHT for number in range(200)}
    assert len(layout(torch.state_dict(tmp_path / "m.pt", tensors, placements))) == 200


def test_views_of_large_storages_are_read_however_many_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What DeepSpeed saves of a mixture of experts: its module's tensors are views of a few storages."""
    monkeypatch.setattr("grpo_watch.sources.checkpoints.pickle_opcodes.BASE_OPCODES", 10)
    large = np.zeros(2 << 20, np.float32)
    views = {f"experts.{number}.w": torch.tensor("0", large) for number in range(200)}
    path = torch.archive(tmp_path / "m.pt", torch.whole(torch.mapping(views)), {"0": large.tobytes()})
    assert len(layout(path)) == 200


def test_a_name_without_end_is_not_joined_again_and_again(tmp_path: Path) -> None:
    """A module's name of a megabyte, remembered once and asked for a thousand times."""
    again = b"h\x00" + torch.text("x") + b"\x93"
    pickle = b"\x80\x04" + torch.text("m" * 1_000_000) + b"q\x00" + torch.text("x") + b"\x93" + again * 1000 + b"."
    assert "the pickle is damaged" in refusal(torch.archive(tmp_path / "m.bin", pickle, {}))


def test_parameters_nested_without_end(tmp_path: Path) -> None:
    opening = torch.named("torch._utils._rebuild_parameter")
    body = (opening + torch.MARK) * 5000 + b"N" + b"tR" * 5000
    assert "nested" in refusal(torch.archive(tmp_path / "m.bin", torch.whole(body), {}))


LIES: dict[str, dict[str, Any]] = {
    "offset behind the storage": {"offset": 1},
    "more elements than the storage": {"shape": (3, 5), "strides": (5, 1)},
    "strides out of the storage": {"strides": (40, 1)},
    "negative offset": {"offset": -1},
    "negative stride": {"strides": (-4, 1)},
    "more dimensions than strides": {"shape": (3, 4, 1)},
    "huge shape": {"shape": (1 << 62, 1 << 62), "strides": (1 << 62, 1)},
    "storage larger than the member": {"count": 1000, "shape": (1000,), "strides": (1,)},
    "type of another size": {"kind": "DoubleStorage"},
    "a hundred dimensions": {"shape": (1,) * 100, "strides": (1,) * 100},
}


SAID_OF_LIES = {
    "offset behind the storage": "a tensor of shape [3, 4] reaches out of its storage '0'",
    "more elements than the storage": "a tensor of shape [3, 5] reaches out of its storage '0'",
    "strides out of the storage": "a tensor of shape [3, 4] reaches out of its storage '0'",
    "huge shape": "a tensor of shape [4611686018427387904, 4611686018427387904] reaches out of its storage '0'",
    "storage larger than the member": "truncated: the storage '0' has 48 bytes of 4 KB",
    "type of another size": "truncated: the storage '0' has 48 bytes of 96 bytes",
}
"""What is reported of each; of all others that the tensor is not understood."""


@pytest.mark.parametrize("case", sorted(LIES))
def test_tensor_that_does_not_fit_its_storage(tmp_path: Path, case: str) -> None:
    part = torch.tensor("0", WEIGHT, **LIES[case])
    path = torch.archive(tmp_path / "m.bin", torch.whole(torch.ordered({"w": part})), {"0": WEIGHT.tobytes()})
    assert refusal(path) == f"m.bin: {SAID_OF_LIES.get(case, 'a tensor of its pickle is not understood')}"


def test_storage_that_is_missing(tmp_path: Path) -> None:
    path = torch.archive(tmp_path / "m.bin", torch.whole(torch.ordered({"w": torch.tensor("../0", WEIGHT)})), {})
    assert "the storage '../0' of 'w' is not in it" in refusal(path)


def test_zip_bomb(tmp_path: Path) -> None:
    """16 MB of zeros in 16 KB: refused by its directory, not inflated."""
    part = torch.tensor("0", WEIGHT, shape=(4_000_000,), strides=(1,), count=4_000_000)
    path = torch.archive(
        tmp_path / "m.bin", torch.whole(torch.ordered({"w": part})), {"0": bytes(16_000_000)}, zipfile.ZIP_DEFLATED
    )
    assert "is compressed (" in refusal(path)


@pytest.mark.parametrize("name", ["../evil", "/etc/passwd", "archive/../../evil", "a\\b"])
def test_member_that_leads_out(tmp_path: Path, name: str) -> None:
    path = torch.state_dict(tmp_path / "m.bin", {"w": WEIGHT})
    with zipfile.ZipFile(path, "a") as zipped:
        zipped.writestr(name, b"x")
    assert "a path out of the archive" in refusal(path)


WHOLE = {
    "TorchScript": {"constants.pkl": b"."},
    "big-endian": {"byteorder": b"big"},
    "torch.QInt8Storage": {},
}


@pytest.mark.parametrize("said", sorted(WHOLE))
def test_whole_file_where_tensors_are_not_understood(tmp_path: Path, said: str) -> None:
    body = torch.ordered({"w": torch.tensor("0", WEIGHT, kind="QInt8Storage")})
    members: dict[str, Any] = WHOLE[said]
    path = torch.archive(tmp_path / "m.pt", torch.whole(body), {"0": WEIGHT.tobytes()}, **members)
    assert [one.dtype for one in digest(path).values()] == [WHOLE_FILE]
    (reported,) = remarks(path)
    assert said in reported
    assert reported.endswith("; hashed as one piece")


def test_zip_of_something_else(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "m.bin", "w") as zipped:
        zipped.writestr("notes.txt", b"x")
    assert "none of torch.save" in refusal(tmp_path / "m.bin")


def patched(path: Path, signature: bytes, at: int, content: bytes, number: int = 0) -> Path:
    """The ``number``-th record that begins with ``signature``, changed ``at`` bytes behind its beginning."""
    raw = bytearray(path.read_bytes())
    where = -1
    for _ in range(number + 1):
        where = raw.index(signature, where + 1)
    raw[where + at : where + at + len(content)] = content
    path.write_bytes(raw)
    return path


ENTRY, END = b"PK\1\2", b"PK\5\6"
OUTSIDE, DAMAGED = "refused: 'archive/data.pkl' lies outside the archive", "the zip directory is damaged"
DIRECTORIES = {
    "header behind the file": (ENTRY, 42, struct.pack("<I", 1 << 30), OUTSIDE),
    "header where none is": (ENTRY, 42, struct.pack("<I", 7), OUTSIDE),
    "member longer than the file": (
        ENTRY,
        20,
        struct.pack("<2I", 1 << 29, 1 << 29),
        "refused: 'archive/data.pkl' reaches out of the archive (537 MB)",
    ),
    "encrypted": (ENTRY, 8, b"\x01\x00", "refused: 'archive/data.pkl' is encrypted"),
    "signature of an entry": (ENTRY, 0, b"XX", DAMAGED),
    "directory behind the file": (END, 16, struct.pack("<I", 1 << 30), "the zip directory lies outside the file"),
    "directory longer than the file": (END, 12, struct.pack("<I", 1 << 30), "the zip directory lies outside the file"),
    "more entries than there are": (END, 10, struct.pack("<H", 60_000), DAMAGED),
    "no end": (END, 0, b"XX", "truncated: a zip archive without its directory at the end"),
}


@pytest.mark.parametrize("case", sorted(DIRECTORIES))
def test_directory_that_contradicts_the_file(tmp_path: Path, case: str) -> None:
    signature, at, content, said = DIRECTORIES[case]
    assert (
        refusal(patched(torch.state_dict(tmp_path / "m.bin", {"w": WEIGHT}), signature, at, content))
        == f"m.bin: {said}"
    )


def test_members_that_overlap(tmp_path: Path) -> None:
    """The second member's entry points to the first one's header."""
    path = torch.state_dict(tmp_path / "m.bin", {"a": WEIGHT, "b": WEIGHT})
    assert "overlaps" in refusal(patched(path, ENTRY, 42, struct.pack("<I", 0), number=1))


def test_member_that_is_twice_there(tmp_path: Path) -> None:
    path = torch.state_dict(tmp_path / "m.bin", {"w": WEIGHT})
    with zipfile.ZipFile(path, "a") as zipped, pytest.warns(UserWarning, match="Duplicate"):
        zipped.writestr("archive/data/0", bytes(48))
    assert "is twice in the zip directory" in refusal(path)


def test_members_without_end(tmp_path: Path) -> None:
    """Reading the headers of five million members took minutes and a gigabyte."""
    entry = struct.pack("<4s6H3L5H2L", ENTRY, *[0] * 16)
    directory = entry * (MAX_MEMBERS + 1)
    record = struct.pack("<4sQ2H2L4Q", b"PK\6\6", 44, 45, 45, 0, 0, *[MAX_MEMBERS + 1] * 2, len(directory), 30)
    locator = struct.pack("<4sLQL", b"PK\6\7", 0, 30 + len(directory), 1)
    end = struct.pack("<4s4H2LH", END, 0, 0, 0xFFFF, 0xFFFF, 0xFFFF_FFFF, 0xFFFF_FFFF, 0)
    path = tmp_path / "m.bin"
    path.write_bytes(b"PK\3\4" + bytes(26) + directory + record + locator + end)
    assert refusal(path) == "m.bin: refused: a zip archive of more than 250,000 members"


def test_sizes_of_64_bits(tmp_path: Path) -> None:
    """As torch writes them for files beyond 4 GB."""
    path = tmp_path / "m.bin"
    with zipfile.ZipFile(path, "w") as zipped:
        with zipped.open("a/data.pkl", "w", force_zip64=True) as member:
            member.write(torch.whole(torch.ordered({"w": torch.tensor("0", WEIGHT)})))
        with zipped.open("a/data/0", "w", force_zip64=True) as member:
            member.write(WEIGHT.tobytes())
    assert digest(path)["w"].checksum == checksum(WEIGHT)


def test_half_a_file(tmp_path: Path) -> None:
    path = torch.state_dict(tmp_path / "m.bin", {"w": WEIGHT})
    os.truncate(path, path.stat().st_size // 2)
    assert refusal(path) == "m.bin: truncated: a zip archive without its directory at the end"


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return torch.state_dict(tmp_path_factory.mktemp("sound") / "m.bin", {"a": WEIGHT, "b": BIAS}, ("Shard",))


@pytest.mark.slow
@settings(derandomize=True, max_examples=500, deadline=None)
@given(st.data())
def test_random_damage_never_reads_out_of_the_file(sound: Path, data: st.DataObject) -> None:
    content = bytearray(sound.read_bytes())
    for _ in range(data.draw(st.integers(1, 6))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(content)))
    damaged = sound.with_name("damaged.bin")
    damaged.write_bytes(content if cut % 4 else content[:cut])
    try:
        assert all(0 <= one.start <= one.end <= len(content) for one in layout(damaged))
        digest(damaged)
    except TensorFileError:
        pass


@pytest.mark.slow
def test_views_that_overlap_without_end_are_refused(tmp_path: Path) -> None:
    """2,000 views, each of nearly all of one storage: two thousand times the hashing that the file's size suggests."""
    array = np.zeros(20_000, np.float32)
    views = {
        f"v{at}": torch.tensor("0", array, offset=at, shape=(18_000,), strides=(1,), count=20_000) for at in range(2000)
    }
    path = torch.archive(tmp_path / "m.bin", torch.whole(torch.ordered(views)), {"0": array.tobytes()})
    assert refusal(path).startswith("m.bin: refused: its tensors span 144 MB of a file of ")
    assert refusal(path).endswith("(at most 4 times its size)")


def test_views_of_a_fused_storage_are_hashed(tmp_path: Path) -> None:
    array = np.arange(3000, dtype=np.float32)
    views = {f"v{at}": torch.tensor("0", array, offset=at, shape=(2000,), count=3000) for at in (0, 500, 1000)}
    body = torch.ordered(views | {"tied": torch.tensor("0", array, offset=0, shape=(2000,), count=3000)})
    found = digest(torch.archive(tmp_path / "m.bin", torch.whole(body), {"0": array.tobytes()}))
    assert {name: one.checksum for name, one in found.items()} == {
        "v0": checksum(array[:2000]),
        "v500": checksum(array[500:2500]),
        "v1000": checksum(array[1000:]),
        "tied": checksum(array[:2000]),
    }
