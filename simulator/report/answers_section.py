"""The part of a load's page on its questions: while segments came in, and idle."""

from __future__ import annotations

from consumers.answers import AnswersReport, AnswerTimes
from simulator.report.parts import (
    Cell,
    Section,
    Table,
    count_cell,
    number_cell,
    time_cell,
)
from simulator.report.percentiles import percentile_picture
from simulator.report.words import (
    ANSWER_STAGES,
    ANSWERED_ON,
    CLOCK_ERROR,
    CLOCK_MARK,
    answered_text,
    is_marked,
    stage_texts,
    time_text,
    unreported_text,
)

_CAPTION = (
    "The same memories were asked at the same rate while segments came in (loaded), and when there was nothing else to "
    "do (idle). What lies between due and the answer alone is waiting."
)


def answers_section(answers: AnswersReport) -> Section:
    """How late questions were answered, loaded and idle."""
    head = ("Stage", "part", "n", "mean", "p50", "p90", "p99", "p99.9", "max", "p50/idle", "p99/idle")
    rows = []
    for stage, name in ANSWER_STAGES.items():
        error_us = answers.error_us.get(stage, 0.0)
        about = f"{name} (± {time_text(error_us)})" if error_us else name
        for part, times in (("loaded", answers.loaded), ("idle", answers.idle)):
            ratio = answers.ratios.get(stage) if part == "loaded" else None
            ratios = (None, None) if ratio is None else (ratio.p50, ratio.p99)
            cells = _times(times, stage, error_us)
            rows.append([Cell(about), Cell(part), *cells, *(number_cell(each, ",.2f") for each in ratios)])
    said = [f"{system} answers {ANSWERED_ON[on]}." for system, on in answers.on.items()]
    said += [f"Loaded: {answered_text(answers.loaded)}.", f"Idle: {answered_text(answers.idle)}."]
    if answers.snapshot is not None:
        p50, p99 = time_text(answers.snapshot.p50_us), time_text(answers.snapshot.p99_us)
        said.append(f"A snapshot took {p50} (p50), {p99} (p99) after an ingest, which is in no stage.")
    if answers.error_us:
        said.append(CLOCK_ERROR)
        if is_marked(cell.text for row in rows for cell in row):
            said.append(CLOCK_MARK)
    curves = {
        f"{part}, {name}": times.stages.get(stage)
        for name, stage in (("due to received", "received"), ("the answer alone", "answer"))
        for part, times in (("loaded", answers.loaded), ("idle", answers.idle))
    }
    title = "Answers by percentile, loaded and idle"
    picture = percentile_picture("answers", title, curves, _CAPTION, of_what="questions")
    table = Table("Time since a question was due; the last two do not run from due", head, rows, id="answers")
    return Section("Questions", " ".join(said), [table], [] if picture is None else [picture])


def _times(times: AnswerTimes, stage: str, error_us: float) -> list[Cell]:
    of, sent = times.stages.get(stage), times.stages.get("published")
    if of is None:
        none = unreported_text(stage, times)
        return [count_cell(0) if none == "0" else Cell(none), *[time_cell(None)] * 6]
    values = (of.mean_us, of.p50_us, of.p90_us, of.p99_us, of.p999_us, of.max_us)
    texts = [time_text(of.mean_us), *stage_texts(of, sent, error_us)]
    return [count_cell(of.n), *map(Cell, texts, values)]
