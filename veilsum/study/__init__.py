"""Studies: their drafts, signatures, vectors, noise and results.

    draft          the TOML file that the author of a study edits
    explain        a study in plain words, for members that approve it
    forecast       what its author can expect of a study's runs
    signed         signing and checking a study
    vectors        a member's vector at each step
    promise        the noise of a step, and its privacy guarantee
    answers        heads, documents and the next step's material, from a sum
    result_files   the files of a result, and a reader's check of them
    canaries       packs of public inputs with their features
    canary_check   a member's canaries beside a pack, and the likely cause of a difference
    canary_slips   features of images under known slips, for a pack
    views          the coordinator's description of a round and its result

`veilsum.protocol.study` defines a study's content, `veilsum.protocol.round_spec` one step of a run.
"""

from veilsum.study import draft, explain, forecast, signed

__all__ = ["draft", "explain", "forecast", "signed"]
