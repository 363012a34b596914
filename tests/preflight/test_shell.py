"""The shell reader: what bash would pass on is what is read, checked against bash itself where there is one."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grpo_watch.preflight.inputs.draft import Argument
from grpo_watch.preflight.inputs.shell import Script, Value

BASH = shutil.which("bash")

WORDS = st.lists(st.text(st.characters(exclude_characters="\x00\r", exclude_categories=["Cs"])), min_size=1, max_size=6)


def commands(text: str, folder: Path = Path(), **environ: str) -> list[list[Argument]]:
    script = Script("x.sh", folder)
    script.begin(environ)
    return [list(command.arguments) for command in script.commands(text)]


def words(text: str, **environ: str) -> list[str]:
    """The arguments of the last command."""
    return [argument.text for argument in commands(text, **environ)[-1]]


@given(WORDS)
def test_quoted_arguments_come_back_as_they_were(arguments: list[str]) -> None:
    assert words(f"run {shlex.join(arguments)}") == ["run", *arguments]


@given(st.text(st.sampled_from("ab$ \"'\\\n(){}[]<>|&;#=-`@*!0~+"), max_size=60))
@settings(max_examples=400)
def test_garbage_never_crashes(text: str) -> None:
    for command in commands(text):
        for argument in command:
            assert isinstance(argument.text, str)


@pytest.mark.skipif(BASH is None, reason="needs bash")
@pytest.mark.parametrize(
    "text",
    [
        "A=1; B=$A$A; show $B \"${A}x\" '$A'",
        'A="a b"; show $A "$A" x$A',
        "ARGS=(--g 8 --name 'a b'); ARGS+=(--h); show \"${ARGS[@]}\" x",
        'show ${NONE:-5} ${NONE-6} ${NONE:+7} "${NONE:-a b}" ${NONE:-a b}',
        'A=; show ${A:-x} "${A-x}" ${A}',
        "show a \\\n  b # c\nshow d#e 'f # g'",
        "show a --x=1 # last \\\n",
        "N=6; show $((N * 8 + 2)) $(( (N+1)/2 )) $((-N / 4)) $(($N%4))",
        "show 2>&1 a 2>/dev/null b 2> /dev/null c",
        "cat > /dev/null <<'EOF'\nshow wrong\nEOF\nshow right",
        "cat > /dev/null <<-EOF\n\tshow wrong\n\tEOF\nshow right",
        "X=1 Y=$X show a; show ${X:-none}",
        "export G=4 H=5; show $G$H",
        "if true; then A=5; show $A; fi",
        'show "a\\"b\\$c\\\\d" a\\ b \\$x',
        "show 'it'\\''s' \"tab\tkept\"",
        "true && show a || false",
        "A=x; A+=y; show $A",
        "function go {\n G=8\n}\ngo\nshow --g $G",
        "A=8; show ${A:+9} ${A:-7} ${A+6}x",
        ': "${A:=4}"; A=${A:-5}; show $A',
        "L=(a b); show $L x",
        "{ show a; }",
        "(show b)",
    ],
)
def test_as_bash_does(text: str, tmp_path: Path) -> None:
    """``show`` prints each argument in angle brackets; the last call of it is compared."""
    script = 'show() { printf "<%s>" "$@"; echo; }\n' + text
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True, cwd=tmp_path)
    last = [command for command in commands(text) if command and command[0].text == "show"][-1]
    assert "".join(f"<{argument.text}>" for argument in last[1:]) == done.stdout.splitlines()[-1]
    assert not any(argument.unknown for argument in last)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("run --g $G", "$G, which nothing here sets"),
        ("run --g $(nproc)", "$(nproc), which only a shell can tell"),
        ("run --g `nproc`", "`nproc`, which only a shell can tell"),
        ("if x; then G=8; fi; run --g $G", "$G, which is set under a condition only"),
        ("G=4; if x; then G=8; fi; run --g $G", "$G, which is set under a condition only"),
        ('[ -z "$G" ] && G=8\nrun --g $G', "$G, which is set under a condition only"),
        ("for G in 4 8; do run --g $G; done", "$G, which a loop sets"),
        ("run --g $((N * 2))", "$((N * 2)), which could not be computed"),
        ("run --g ${G%%,*}", "${G%%,*}, which only a shell can tell"),
        ("G=$(cat n); run --g $G", "$G, $(cat n), which only a shell can tell"),
    ],
)
def test_what_can_not_be_known_is_reported_and_never_guessed(text: str, why: str) -> None:
    last = commands(text)[-1][-1]
    assert last.unknown == why


def test_a_branch_that_does_not_change_a_variable_leaves_it_known() -> None:
    assert words("G=8; if x; then G=8; H=1; fi; run $G") == ["run", "8"]


def test_each_word_has_its_line() -> None:
    text = 'A=(\n  --one\n)\nrun \\\n  --two \\\n  "${A[@]}"'
    assert [(argument.text, argument.origin) for argument in commands(text)[-1]] == [
        ("run", "x.sh:4"),
        ("--two", "x.sh:5"),
        ("--one", "x.sh:2"),
    ]


def test_the_environment_holds_what_is_exported_and_no_more() -> None:
    script = Script("x.sh", Path())
    script.begin({"NNODES": "2", "HF_TOKEN": "secret"})
    text = "export CUDA_VISIBLE_DEVICES=0,1\nNPROC_PER_NODE=2\nexport HF_TOKEN=x\nMAX_PIXELS=9 run"
    last = list(script.commands(text))[-1]
    assert {name: setting.value for name, setting in last.environment.items()} == {
        "CUDA_VISIBLE_DEVICES": "0,1",
        "MAX_PIXELS": "9",
        "NNODES": "2",
    }
    assert script.notes == ["x.sh:2: NPROC_PER_NODE is set but not exported, so the launch does not see it"]


def test_a_sourced_file_is_read_and_a_missing_one_reported(tmp_path: Path) -> None:
    (tmp_path / "env.sh").write_text("export NPROC_PER_NODE=4\nG=8\n")
    script = Script("x.sh", tmp_path)
    script.begin({})
    last = list(script.commands("source ./env.sh\n. missing.sh\nrun $G"))[-1]
    assert [argument.text for argument in last.arguments] == ["run", "8"]
    assert last.environment["NPROC_PER_NODE"].value == "4"
    assert script.notes == ["x.sh:2: source missing.sh was not read: No such file or directory"]


@pytest.mark.parametrize(
    "text",
    [
        "srun --label bash -c 'run --g 8'",
        'CMD="run --g 8"; bash -lc "$CMD"',
        'CMD="run --g 8"\neval "$CMD"',
        'CMD="run --g 8"\n$CMD',
        "ssh host bash -c 'cd x && run --g 8'",
        "go() {\n  run --g 8\n}\n",
    ],
)
def test_a_command_inside_a_command_is_seen(text: str) -> None:
    assert ["run", "--g", "8"] in [[argument.text for argument in command] for command in commands(text)]


def test_a_text_that_is_known_in_part_is_read_in_part() -> None:
    last = commands('N=$(nproc)\nLAUNCH="run --n $N"\nsrun bash -c "$LAUNCH --g 8"')[-1]
    assert [argument.text for argument in last][-2:] == ["--g", "8"]
    assert [bool(argument.unknown) for argument in last] == [False, False, True, False, False]
    split = commands('N=$(cat n)\nRUN="run --n $N"\n$RUN --g 8')[-1]
    assert [(argument.text, bool(argument.unknown)) for argument in split] == [
        *(("run", False), ("--n", False), ("$(cat n)", True), ("--g", False), ("8", False)),
    ]


@pytest.mark.parametrize(
    "bomb",
    ["A=$A$A\n" * 60, 'A+="$A"\n' * 60, 'L+=("${L[@]}")\n' * 60, "A=$A$A$A\n" * 9 + "B=$A\nA=" + "$B" * 3000 + "\n"],
)
def test_a_text_that_doubles_again_and_again_is_given_up(bomb: str) -> None:
    last = commands(f"A=abcdefgh\nL=(a b)\n{bomb}run $A $L")[-1]
    assert sum(len(argument.text) for argument in last) < 1_000_000


def test_a_file_that_sources_itself_ends(tmp_path: Path) -> None:
    (tmp_path / "x.sh").write_text("source x.sh\nrun a")
    script = Script("x.sh", tmp_path)
    script.begin({})
    assert list(script.commands("source x.sh"))[-1].arguments[-1].text == "a"
    assert "too many files read one another" in script.notes[-1]


@pytest.mark.parametrize(
    ("text", "value"),
    [("2*3", 6), ("7/2", 3), ("-7/2", -3), ("1/0", None), ("9**9**9", None), ("N+1", 5), ("M", None), ("a b", None)],
)
def test_sums(text: str, value: int | None) -> None:
    assert Script("x.sh", Path(), known={"N": Value("4")}).sum(text) == value
