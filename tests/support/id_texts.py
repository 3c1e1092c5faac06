"""Texts that say the same id in several ways, and any others."""

from hypothesis import strategies as st

_UTF8 = st.characters(codec="utf-8")
_PARTS = st.sampled_from(
    [*"-0123456789. uA\0", "\u0308", "\u00fc", "\u200b", "\u200d", "\u2003", "\ufeff", "\uff17", "\u00aa"]
)
ID_TEXTS = st.text(_UTF8) | st.lists(_PARTS, max_size=12).map("".join)
