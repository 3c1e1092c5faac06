"""What a federation sums: the signed study, its rules, and what its sums mean.

    draft          the TOML file that its author edits
    explain        a study in plain words, for members that approve it
    signed         how it is signed and checked
    vectors        what a member sends at each step
    promise        the noise of a step, and what it promises
    answers        heads, documents and the next step's material, from a sum
    result_files   the files of a result, and how a reader checks them
    views          what a coordinator says of a round and its result

`veilsum.protocol.study` holds a study's content, `veilsum.protocol.round_spec` one step of a run.
"""

from veilsum.study import draft, explain, signed

__all__ = ["draft", "explain", "signed"]
