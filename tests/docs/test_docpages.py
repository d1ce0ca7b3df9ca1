"""The reader of pages itself: what it finds, and what it takes for the same."""

from __future__ import annotations

from docpages import blocks, same, shown_runs

PAGE = """# A page

<!-- file: llmroof.yaml -->
<!-- exits with 2 -->

```yaml
windows: {}
```

<!-- not run: no engine -->
```console
$ first \\
    and more
one
$ second
```
"""


def test_blocks_carry_their_markers() -> None:
    first, second = blocks(PAGE)
    assert (first.language, first.text, first.line) == ("yaml", "windows: {}\n", 6)
    assert first.markers == {"file": "llmroof.yaml", "exits with": "2"}
    assert first.exit_code == 2
    assert first.runs
    assert second.markers == {"not run": "no engine"}
    assert not second.runs


def test_commands_run_over_lines_and_keep_their_output() -> None:
    assert shown_runs(blocks(PAGE)[1]) == [("first \\\n    and more", "one\n"), ("second", "")]


def test_three_dots_stand_for_lines_and_for_nothing() -> None:
    assert same("a\n...\nc\n", "a\nb\nb\nc\n")
    assert same("a\n...\nc\n", "a\nc\n")
    assert not same("a\n...\nd\n", "a\nb\nc\n")


def test_times_and_rulers_do_not_count_but_figures_do() -> None:
    assert same("==== 1 passed in 0.50s ====\n", "===== 1 passed in 12.34s =====\n")
    assert not same("found 41.3 %\n", "found 41.4 %\n")
