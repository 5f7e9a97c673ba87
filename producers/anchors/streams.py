"""One stream, by what anchors and those who read them say of it. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from producers.anchors.words import Frequencies, units
from producers.lifelog import Lifelog, RawObservation, SegmentSpan


class StreamIndex:
    """One stream, by what anchors say of it. Made once, since the words of all its segments are counted."""

    def __init__(self, lifelog: Lifelog) -> None:
        self.name = lifelog.stream
        self._lifelog = lifelog
        self._seqs: dict[tuple[str, int], int] = {}
        for seq, observation in enumerate(lifelog.observations):
            if observation.stream_index is not None:
                self._seqs.setdefault((observation.day, observation.stream_index), seq)
        self._spans: dict[tuple[str, int], SegmentSpan] = {}
        for span in lifelog.segments:
            self._spans.setdefault((span.day, span.segment_id), span)
        self._words: Frequencies | None = None
        self.wearer = units(wearer_of(lifelog.stream))

    @property
    def words(self) -> Frequencies:
        """In how many segments each word occurs."""
        if self._words is None:
            self._words = self.count_words()
        return self._words

    def count_words(self) -> Frequencies:
        """Count them now. Of a week this takes about a second."""
        self._words = Frequencies.of(self.text(span) for span in self._lifelog.segments)
        return self._words

    def text(self, span: SegmentSpan) -> str:
        """All lines of a segment."""
        lines = self._lifelog.observations[span.first_seq : span.last_seq + 1]
        return "\n".join(observation.text for observation in lines)

    def span(self, day: str, segment_id: int) -> SegmentSpan | None:
        """The segment of that number; the first, where a release gives it twice."""
        return self._spans.get((day, segment_id))

    def seq(self, day: str, stream_index: int) -> int | None:
        """Where in the stream the day's observation of that index is."""
        return self._seqs.get((day, stream_index))

    def observation(self, seq: int) -> RawObservation:
        """One observation."""
        return self._lifelog.observations[seq]

    def lines(
        self, span: SegmentSpan, quoted: Collection[int] = (), around: int | None = None
    ) -> Iterator[str]:
        """A segment's lines with their indices, `>` before those of the `quoted` seqs. With `around`, only so many
        before and after each of these, and `...` for what is left out; all where nothing of the segment is quoted."""
        inside = {seq for seq in quoted if span.first_seq <= seq <= span.last_seq}
        before = span.first_seq - 1
        for seq in range(span.first_seq, span.last_seq + 1):
            if around is not None and inside and not any(abs(seq - other) <= around for other in inside):
                continue
            if seq != before + 1:
                yield "..."
            before = seq
            observation = self.observation(seq)
            mark = ">" if seq in inside else " "
            yield f"{mark} [{observation.stream_index}] {observation.text}"
        if before != span.last_seq:
            yield "..."


def wearer_of(stream: str) -> str:
    """`A1_JAKE` is worn by Jake."""
    head, _, name = stream.partition("_")
    return name or head
