"""Every relative link of every page leads to a file, and every anchor to a heading in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.markdown import ROOT, anchors, blocks, links

FOLDERS = ("benchmarks", "deploy", "docs", "grpo_watch/detectors", "grpo_watch/preflight/checks")
PAGES = sorted([*ROOT.glob("*.md"), *(page for folder in FOLDERS for page in (ROOT / folder).rglob("*.md"))])


def broken(page: Path) -> list[str]:
    """The links of a page that lead nowhere."""
    found = []
    for link in links(page.read_text(encoding="utf-8")):
        if "://" in link.target or link.target.startswith("mailto:"):
            continue
        path, _, anchor = link.target.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.is_relative_to(ROOT) or not target.exists():
            found.append(f"{page.relative_to(ROOT)}:{link.line}: no file {link.target}")
        elif anchor and (target.suffix != ".md" or anchor not in anchors(target.read_text(encoding="utf-8"))):
            found.append(f"{page.relative_to(ROOT)}:{link.line}: no heading {link.target}")
    return found


def test_links_lead_somewhere() -> None:
    assert [link for page in PAGES for link in broken(page)] == []


def test_every_page_is_reached_from_the_index() -> None:
    """A page that nobody links is read by nobody: add it to docs/index.md."""
    reached: set[Path] = set()
    to_read = [ROOT / "docs" / "index.md"]
    while to_read:
        page = to_read.pop()
        if page in reached:
            continue
        reached.add(page)
        if page.is_dir():
            to_read += page.glob("*.md")
        elif page.suffix == ".md":
            targets = (link.target.partition("#")[0] for link in links(page.read_text(encoding="utf-8")))
            found = [(page.parent / target).resolve() for target in targets if target and "://" not in target]
            to_read += [target for target in found if target.is_relative_to(ROOT / "docs")]
    assert sorted(set((ROOT / "docs").rglob("*.md")) - reached) == []


def test_what_leads_nowhere_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The checker itself: a missing file, a missing heading, a link out of the repository; not code, not addresses."""
    monkeypatch.setattr("tests.docs.test_links.ROOT", tmp_path)
    page = tmp_path / "page.md"
    page.write_text(
        "# A page, with `code` & more\n\n[a](gone.md) `[b](gone.md)` [c](https://example.org)\n"
        "[d](#a-page-with-code--more) [e](#nowhere)\n\n```\n[f](gone.md)\n```\n\n[g](../outside.md)\n"
    )
    (tmp_path.parent / "outside.md").touch()
    assert broken(page) == [
        "page.md:3: no file gone.md",
        "page.md:4: no heading #nowhere",
        "page.md:10: no file ../outside.md",
    ]


def test_repeated_headings_are_counted() -> None:
    assert anchors("# One\n## Same\n## Same\n```\n# no heading\n```\n") == {"one", "same", "same-1"}


def test_a_block_knows_the_file_that_is_named_before_it() -> None:
    """The name closes the sentence before the fence."""
    text = "Put this into `mine.yaml`:\n\n```yaml\na: 1\n```\n\nAnd `more` text.\n\n```console\n$ ls\n```\n"
    assert [(block.info, block.line, block.file) for block in blocks(text)] == [
        ("yaml", 3, "mine.yaml"),
        ("console", 9, None),
    ]
