// A memory agent that knows nothing but Kafka and JSON: `egostream asyncapi` says what travels, README.md how to
// start it. It drives one Memory for each stream of the run, forks it for each trajectory, and ends with the run.

import { randomUUID } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import { parseArgs } from 'node:util'
import { Consumer, Producer, stringDeserializers, stringSerializers } from '@platformatic/kafka'
import { Memory } from './memory.mjs'

const { values: options } = parseArgs({
  options: {
    broker: { type: 'string', default: process.env.EGOSTREAM_BROKER ?? '127.0.0.1:9092' },
    run: { type: 'string', default: process.env.EGOSTREAM_RUN },
    system: { type: 'string', default: process.env.EGOSTREAM_SYSTEM ?? 'node' },
    prefix: { type: 'string', default: process.env.EGOSTREAM_PREFIX ?? '' } // of topics, on a shared cluster
  }
})
if (!options.run) {
  console.error('usage: node agent.mjs --run RUN [--broker HOST:PORT,...] [--system LABEL] [--prefix PREFIX]')
  process.exit(2)
}
const { run, system } = options
const topic = name => `${options.prefix}${run}.${name}`
const client = { clientId: `egostream-${system}`, bootstrapBrokers: options.broker.split(',') }
const producer = new Producer({ ...client, idempotent: true, serializers: stringSerializers })
// Of a clock that nobody sets, in whole microseconds
const wallUs = () => Math.round((performance.timeOrigin + performance.now()) * 1000)

// --- the memory side: one event in, at most one event out; no Kafka here -------------------------------------

class Lane {
  constructor(started, stream) {
    Object.assign(this, { started, stream, name: `${system}@${stream}`, memory: new Memory() })
    Object.assign(this, { observations: [], snapshots: new Map(), branches: new Map() })
    const { top_k = 10, word_budget = 500 } = started.identity
    this.limits = { topK: Number(top_k), wordBudget: Number(word_budget) }
  }

  // What every event of ours has. `causes` and `as_of` say what it rests on; the ids are fixed by the protocol.
  event(kind, id, cause, fields) {
    const { stream, name: lane } = this
    return { kind, id, run, stream, lane, event_time_us: cause.event_time_us, causes: [cause.id], ...fields }
  }

  inTrajectory(kind, suffix, cause, branch, fields) {
    const { trajectory, step } = cause
    const id = `${trajectory}/${suffix}`
    return this.event(kind, id, cause, { as_of: branch.segment, trajectory, step: step + 1, ...fields })
  }

  // A memory that fails costs this one result: it becomes the event's `error`, and is then unjudged.
  attempt(operation) {
    try {
      return operation()
    } catch (error) {
      return { error: `${error}` }
    }
  }

  // A load's question: its T1 is all there is of the trajectory, and nothing waits. So it is answered from the memory
  // as it is by now, and says as of when that was.
  answerQuestion(task) {
    const { segment, event_time_us } = this.newest
    const answer = this.attempt(() => this.memory.answer(task.text, '', this.limits))
    return this.inTrajectory('response', 'R1', { ...task, event_time_us }, { segment }, { phase: 'R1', ...answer })
  }

  take(event) {
    switch (event.kind) {
      case 'observation':
        this.observations.push(event)
        return
      case 'segment_closed': {
        const { segment } = event
        this.newest = event
        const delta = this.attempt(() => this.memory.ingest(this.observations))
        this.observations = []
        this.snapshots.set(segment, this.memory.fork())
        return this.event('delta', `${this.name}/delta/${segment}`, event, { as_of: segment, segment, ...delta })
      }
      case 'task': {
        if (this.started.questions) return this.answerQuestion(event)
        if (event.phase === 'T1') {
          const memory = this.started.isolation === 'shared' ? this.memory : this.snapshots.get(event.segment).fork()
          this.branches.set(event.trajectory, { segment: event.segment, memory, question: event.text })
        }
        const branch = this.branches.get(event.trajectory)
        if (!branch) return // its trajectory was closed meanwhile
        const [phase, arm] = [event.phase === 'T1' ? 'R1' : 'R2', event.arm ?? 'committed']
        const memory = arm === 'committed' ? branch.memory : branch.uncommitted
        const answer = this.attempt(() => memory.answer(event.text, '', this.limits))
        const suffix = arm === 'committed' ? phase : `${phase}-${arm}`
        return this.inTrajectory('response', suffix, event, branch, { phase, arm, ...answer })
      }
      case 'feedback': {
        if (event.type === 'affirm') return
        const branch = this.branches.get(event.trajectory)
        if (!branch) return
        const answer = this.attempt(() => branch.memory.answer(branch.question, event.text, this.limits))
        return this.inTrajectory('response', 'R_F', event, branch, { phase: 'R_F', ...answer })
      }
      case 'commit': {
        const branch = this.branches.get(event.trajectory)
        if (!branch) return
        if (event.keep_uncommitted) branch.uncommitted = branch.memory.fork()
        const id = event.trajectory.slice(this.name.length + 1)
        const delta = this.attempt(() => branch.memory.commit(id, event.interaction, event.event_time_us))
        return this.inTrajectory('committed', 'committed', event, branch, delta)
      }
      case 'segment_released': // no trajectory will start any more on what was up to this segment
        for (const segment of this.snapshots.keys()) if (segment <= event.segment) this.snapshots.delete(segment)
        return
      case 'trajectory_closed':
        this.branches.delete(event.trajectory)
    }
  }
}

// --- the Kafka side -------------------------------------------------------------------------------------------

const TOPIC_OF = { delta: 'deltas', committed: 'deltas', response: 'responses', ready: 'control' }
const waiting = []
let sending = Promise.resolve()

// Sends in order, what has become ready meanwhile at once: as much as fits into one batch of a broker (1 MB).
function publish(event, partition, times = {}) {
  const headers = Object.entries({ kind: event.kind, v: 1, wall_us: wallUs(), ...times })
  waiting.push({
    topic: topic(TOPIC_OF[event.kind]),
    partition,
    key: event.lane ?? '',
    value: JSON.stringify({ ...event, v: 1 }),
    headers: Object.fromEntries(headers.map(([name, value]) => [name, String(value)])),
    timestamp: BigInt(Math.floor(event.event_time_us / 1000)) // event time, not the wall's
  })
  sending = sending.then(async () => {
    while (waiting.length) {
      const messages = []
      for (let bytes = 0; waiting.length && (!messages.length || bytes < 250_000); ) {
        messages.push(waiting.shift())
        bytes += Buffer.byteLength(messages.at(-1).value)
      }
      await producer.send({ messages, acks: -1 })
    }
  })
  sending.catch(fail)
}

// Every event of some topics from the first on; before them, `undefined` once it is subscribed. A group of its own
// that commits nothing: the memory lives in this process, so whoever starts anew must read everything again.
async function* read(names) {
  const groupId = `${options.prefix}${run}.attached.${system}.${randomUUID()}`
  const consumer = new Consumer({ ...client, groupId, deserializers: stringDeserializers, maxWaitTime: 50 })
  readers.push(consumer)
  const topics = names.map(topic)
  await made(consumer, topics)
  const stream = await consumer.consume({ topics, mode: 'earliest', autocommit: false })
  const next = new Map()
  yield
  for await (const { topic, partition, offset, value } of stream) {
    const place = `${topic}/${partition}`
    if (offset < (next.get(place) ?? 0n)) continue // given again after the group met anew
    next.set(place, offset + 1n)
    try {
      yield JSON.parse(value)
    } catch {
      console.error(`no JSON at ${place}/${offset}`) // egostream buries what can't be read
    }
  }
}

// Waits for a run that is only just being set up.
async function made(consumer, topics) {
  for (let tries = 1; ; tries++) {
    try {
      return await consumer.metadata({ topics, forceUpdate: true })
    } catch (error) {
      if (!/unknown topic/i.test(error.message) || tries === 60) throw error
      if (tries === 1) console.error(`${options.broker}: there is no run ${run} yet; waiting for a minute`)
      await sleep(1000)
    }
  }
}

const readers = []
const lanes = new Map()

async function follow(started) {
  const partitionOf = new Map(started.streams.map((stream, index) => [stream, index % started.partitions]))
  for (const stream of started.streams) lanes.set(stream, new Lane(started, stream))
  for await (const event of read(['observations', 'tasks', 'feedback', 'commits'])) {
    if (event === undefined) {
      const role = `agent.${system}`
      publish({ kind: 'ready', id: `ready/${role}`, run, event_time_us: 0, role }, 0)
      continue
    }
    const read_us = wallUs()
    const lane = lanes.get(event.stream)
    if (event.lane && event.lane !== lane.name) continue // another system's
    const began_us = wallUs()
    const result = lane.take(event)
    if (result) publish(result, partitionOf.get(event.stream), { read_us, began_us, ended_us: wallUs() })
  }
}

let ended = false // then the readers are closed, and what they were about to do may fail

async function main() {
  for await (const event of read(['control'])) {
    if (event?.kind === 'run_started') follow(event).catch(fail)
    else if (event?.kind === 'run_ended' || event?.kind === 'load_cut_short') return void (ended = true)
    else if (event?.lane?.startsWith(`${system}@`)) lanes.get(event.stream)?.take(event)
  }
}

function fail(error) {
  if (ended) return
  const reasons = new Set([error, ...(error.errors ?? [])].map(({ message }) => message))
  console.error(`${options.broker}: ${[...reasons].join(' ')}`)
  process.exit(1)
}

await main().catch(fail)
await sending
await Promise.all([producer.close(), ...readers.map(reader => reader.close(true))])
