"""Index terms of English text: tokens without stop words, stemmed.

`Postings(terms=english_terms)` indexes them in place of the plain tokens. Chinese characters stay as they are.
"""

from __future__ import annotations

import functools
import threading
from typing import Any, Final

from simulator.text import tokens

_STOP_WORDS: Final = """
i me my myself we our ours ourselves you your yours yourself yourselves he him his himself she her hers herself it its
itself they them their theirs themselves what which who whom this that these those am is are was were be been being
have has had having do does did doing a an the and but if or because as until while of at by for with about against
between into through during before after above below to from up down in out on off over under again further then once
here there when where why how all any both each few more most other some such no nor not only own same so than too
very can will just should now
d ll m o re s t ve y ain aren couldn didn doesn don hadn hasn haven isn ma mightn mustn needn shan shouldn wasn weren
won wouldn
"""
STOP_WORDS: Final = frozenset(_STOP_WORDS.split())
"""NLTK's English list (Snowball's, with the halves that contractions fall into at the apostrophe)."""

_stemming = threading.Lock()  # the stemmer keeps the word that it works on in itself


@functools.cache
def _stemmer() -> Any:
    import snowballstemmer  # a stemmer for each of thirty languages, which most commands don't need

    return snowballstemmer.stemmer("porter")


@functools.lru_cache(1 << 16)
def _stem(word: str) -> str:
    with _stemming:
        return str(_stemmer().stemWord(word))


def english_terms(text: str) -> list[str]:
    """The text's tokens in order, without stop words, each stemmed by Porter's algorithm (1980; the Snowball project's
    version)."""
    return [_stem(token) for token in tokens(text) if token not in STOP_WORDS]
