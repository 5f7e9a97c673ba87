// The memory itself: keeps every line, answers with those that share most words with the question.
// Put your own here.

const wordsOf = text => new Set(text.toLowerCase().match(/[\p{L}\p{N}_]+/gu) ?? [])

export class Memory {
  // A fork sees the first `length` entries of the trunk, and its own. Only the lane's main memory writes to the
  // trunk, so a fork costs nothing and what comes later is not seen in it.
  constructor(trunk = [], length = Infinity, own = []) {
    Object.assign(this, { trunk, length, own })
  }

  fork() {
    return new Memory(this.trunk, Math.min(this.length, this.trunk.length), [...this.own])
  }

  write(records) {
    const entries = records.map(record => ({ record, words: wordsOf(record.text) }))
    ;(this.length === Infinity ? this.trunk : this.own).push(...entries)
    return { records, stored_bytes: records.reduce((sum, { text }) => sum + Buffer.byteLength(text), 0) }
  }

  ingest(observations) {
    return this.write(observations.map(({ id, text, event_time_us }) => ({ id, text, event_time_us })))
  }

  commit(id, turns, event_time_us) {
    return this.write([{ id, text: turns.map(turn => `${turn.role}: ${turn.text}`).join('\n'), event_time_us }])
  }

  // `feedback` is what the person said to an earlier answer: it comes first, and is searched for too.
  answer(question, feedback, { topK, wordBudget }) {
    const asked = [...wordsOf(`${question} ${feedback}`)]
    const retrieved = [...this.trunk.slice(0, this.length), ...this.own]
      .map(({ record, words }) => ({ record, score: asked.filter(word => words.has(word)).length }))
      .filter(({ score }) => score > 0)
      .sort((a, b) => b.score - a.score || b.record.event_time_us - a.record.event_time_us)
      .slice(0, topK)
      .map(({ record, score }) => ({ ...record, score }))
    const text = [feedback, ...retrieved.map(record => record.text)].join(' ').trim()
    return { text: text.split(/\s+/).slice(0, wordBudget).join(' '), retrieved }
  }
}
