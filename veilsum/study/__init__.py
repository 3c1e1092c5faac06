"""What a federation sums: the signed study, its rules, and what it means in plain words.

`Content` is the study itself, `draft` the TOML file that its author edits, `explain` what members read before they approve, and
`signed` how a study is signed and checked.
"""

from veilsum.study import content, draft, explain, signed

__all__ = ["content", "draft", "explain", "signed"]
