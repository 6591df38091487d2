"""What a broker says of its settings, as the console shows it."""

from __future__ import annotations

import pytest

from ottla.console.configs import plain


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("The time to wait", "The time to wait"),
        ("if <code>acks</code> is &quot;all&quot;", 'if acks is "all"'),
        ('the <a href="#compaction">log\n compaction</a>', "the log compaction"),
        ("first.<p>Then</p><br>more", "first. Then more"),
        ("a < b and c > d, at most <n>", "a < b and c > d, at most <n>"),
        ("&lt;script&gt; stays text", "<script> stays text"),
    ],
)
def test_documentation_is_plain_text(said: str, shown: str) -> None:
    assert plain(said) == shown
