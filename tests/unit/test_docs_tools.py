"""The tools behind the documentation: they must see what is wrong in a page, or the pages' tests prove nothing."""
from __future__ import annotations

from pathlib import Path

import pytest

from docs_tools import compare, console, insert, links, pages


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        ("a 1\nb", "a 1\nb", True),
        ("a 1\nb", "a 2\nb", False),
        ("a 1", "a 1\nb", False),
        ("a  1", "a 1", False),
        ("a\n…\nd", "a\nb\nc\nd", True),
        ("a\n…\nd", "a\nb\nc", False),
        ("…\nd", "d", True),
        ("wrote …/x", "wrote /tmp/q/x", True),
        ("wrote …/x", "read /tmp/q/x", False),
        ("f(x)*", "f(x)*", True),
    ],
)
def test_what_is_shown_must_be_what_is_printed(shown, printed, same):
    assert compare.matches(shown, printed) is same


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        ("ok: 0.302 s/it", "ok: 11.5 s/it", True),
        ("ok: 0.302 s/it", "hang: 11.5 s/it", False),
        ("a: 1 s\nb: 2 s", "b: 1 s\na: 2 s", True),
        ("a: 1 s\nb: 2 s", "a: 1 s\na: 2 s", False),
        ("a: 1 s", "a: 1 s\nb: 2 s", False),
        ("a: 1 s\n…", "b: 2 s\na: 1 s", True),
        ("  forward  0.1 s  40.0%  ███\n  loss  0.1 s  10%  █", "  backward  3 s  2%  ▏", True),
        ("  forward  0.1 s  40.0%  ███", "no bars", False),
        ("x: 0.1 s/it ± 2.1%, 3 TFLOPs", "x: 0.1 s/it, 3 TFLOPs", True),
        ("5 ok, best case=data: 0.1 s", "5 ok, best case=zero: 0.2 s", True),
        ("| --- | 1 |", "| ------ | 22 |", True),
        ("| data | **1.5** |", "| data | 1.4 ± 2% |", True),
    ],
)
def test_a_measured_block_is_held_to_its_words(shown, printed, same):
    assert compare.matches(shown, printed, measured=True) is same


def test_a_renewed_block_shows_as_much_as_before():
    assert compare.renewed("old\n…\nx\ny", "1\n2\n3\n4\n5") == "1\n…\n4\n5"
    assert compare.renewed("", "1\n2") == "1\n2"


def page_of(text: str, tmp_path: Path) -> pages.Page:
    path = tmp_path / "page.md"
    path.write_text(text)
    return pages.read(path)


PAGE = """# A page

<!-- docs: file hello.txt -->
```text
hello
```

<!-- docs: exit 3 -->
```console
$ cat hello.txt
hello
$ echo one; \\
  exit 3
two
```

<!-- docs: instead echo dry -->
```console
$ rm -rf everything
gone
```
"""


def test_a_pages_commands_are_run_and_what_differs_is_said(tmp_path):
    results = list(console.run([page_of(PAGE, tmp_path)], tmp_path / "folder"))
    assert [r.ran for r in results] == ["cat hello.txt", "echo one; \\\n  exit 3", "echo dry"]
    assert [r.complaint() == "" for r in results] == [True, False, True]
    assert "page.md:12" in results[1].complaint() and "-two" in results[1].complaint()


def test_another_exit_status_is_a_complaint(tmp_path):
    (result,) = console.run([page_of("```console\n$ false\n```\n", tmp_path)], tmp_path / "folder")
    assert "ended with 1, not 0" in result.complaint()


def test_pages_of_one_folder_run_a_command_once(tmp_path):
    count = "```console\n$ echo x >>count; wc -l <count\n{}\n```\n"
    first, second = tmp_path / "a.md", tmp_path / "b.md"
    first.write_text(count.format(1))
    second.write_text("<!-- docs: after a.md -->\n" + count.format(1) + "```console\n$ wc -l <count\n1\n```\n")
    (chain,) = console.chains([second, first])
    assert [page.path for page in chain] == [first, second]
    assert not [r.complaint() for r in console.run(chain, tmp_path / "folder") if r.complaint()]


@pytest.mark.parametrize("text", ["<!-- docs: mesured -->\n```console\n$ a\n```", "<!-- docs: exit 1 -->\ntext", "```console"])
def test_a_comment_that_steers_nothing_is_an_error(tmp_path, text):
    with pytest.raises(ValueError):
        page_of(text, tmp_path)


def test_dead_links_and_unknown_commands_are_found(monkeypatch, tmp_path):
    for module in (links, pages):
        monkeypatch.setattr(module, "ROOT", tmp_path)
    (tmp_path / "Makefile").write_text("demo:\n\ttrue\n")
    (tmp_path / "other.md").write_text("# Other\n\n## Part `a` of it\n")
    path = tmp_path / "page.md"
    path.write_text("[a](other.md) [b](other.md#part-a-of-it) [c](other.md#nothing) [d](gone.md) [e](https://x.example) "
                    "`src/no/such.py` `seatrial plan --model x` `seatrial plan --fast` `seatrial fly` `make demo` `make tea` "
                    "`python -m benchmarks.none`\n")
    assert [line.split(": ")[1] for line in links.dead(path)] == ["other.md#nothing", "gone.md", "`src/no/such.py`"]
    assert [line.rsplit(": ", 1)[1] for line in links.unknown(path)] == [
        "plan has no --fast", "no such command as fly", "no such target", "no such module"]


def test_a_dataclass_becomes_a_table_of_its_docstrings():
    table = insert.fields("seatrial.spec.Batch")
    assert "| `gbs` | `int` | *must be given* | Sequences of one iteration, over all replicas. |" in table
    assert table.count("\n") == 6
    assert insert.fields("seatrial.record.Record", "env", "flags", "procs_per_node").splitlines()[2:] == [
        "| `procs_per_node` | `int` |  |  |",
        "| `env` | `table of str` |  | Environment variables and scheduler options that the row names. |",
        "| `flags` | `list of str` | `[]` | Marks such as ^ ^^ and a dagger. |",
    ]
