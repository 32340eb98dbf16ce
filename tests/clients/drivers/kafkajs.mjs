import kafkajs from 'kafkajs'
import SnappyCodec from 'kafkajs-snappy'
import LZ4Codec from 'kafkajs-lz4'
import { bytes, serve, text } from './lines.mjs'

const { Kafka, CompressionTypes, CompressionCodecs, ConfigResourceTypes, logLevel } = kafkajs
CompressionCodecs[CompressionTypes.Snappy] = SnappyCodec
CompressionCodecs[CompressionTypes.LZ4] = new LZ4Codec().codec
const codecs = {
  none: CompressionTypes.None,
  gzip: CompressionTypes.GZIP,
  snappy: CompressionTypes.Snappy,
  lz4: CompressionTypes.LZ4
}

const kafka = new Kafka({
  clientId: 'kafkajs',
  brokers: [process.argv[2]],
  logLevel: logLevel.NOTHING,
  retry: { retries: 5, initialRetryTime: 50 }
})
const admin = kafka.admin()
await admin.connect()

function codeOf (error) {
  for (let each = error; each; each = each.cause ?? each.originalError) {
    if (each.errors?.length) return codeOf(each.errors[0])
    if (typeof each.code === 'number') return each.code
  }
}

function headersOf (message) {
  const found = []
  for (const [name, value] of Object.entries(message.headers ?? {})) {
    for (const each of Array.isArray(value) ? value : [value]) found.push([name, text(each)])
  }
  return found
}

const rowOf = (partition, message) => ({
  key: text(message.key),
  value: text(message.value),
  headers: headersOf(message),
  timestamp: Number(message.timestamp),
  partition,
  offset: Number(message.offset)
})

// Reads ``count`` records of a topic through a group; ``place`` may seek once it runs.
async function read (topic, group, count, commits, partition, place) {
  const consumer = kafka.consumer({ groupId: group, maxWaitTimeInMs: 50, rebalanceTimeout: 5000 })
  const found = []
  await consumer.connect()
  try {
    await consumer.subscribe({ topics: [topic], fromBeginning: true })
    await new Promise((resolve, reject) => {
      consumer.on(consumer.events.CRASH, event => reject(event.payload.error))
      consumer
        .run({
          autoCommit: false,
          eachMessage: async ({ partition: at, message }) => {
            if (found.length >= count || (partition !== null && at !== partition)) return
            if (place && Number(message.offset) < place) return
            found.push(rowOf(at, message))
            if (found.length === count) resolve()
          }
        })
        .then(() => {
          if (place !== null) consumer.seek({ topic, partition, offset: String(place) })
        })
        .catch(reject)
    })
    if (commits) {
      const next = new Map(found.map(row => [row.partition, row.offset + 1]))
      await consumer.commitOffsets(
        [...next].map(([at, offset]) => ({ topic, partition: at, offset: String(offset) }))
      )
    }
  } finally {
    await consumer.disconnect()
  }
  return found
}

const offsetsOf = async (topic, partition) =>
  (await admin.fetchTopicOffsets(topic)).find(each => each.partition === partition)

await serve({
  create_topic: async ({ topic, partitions, config }) => {
    const configEntries = Object.entries(config).map(([name, value]) => ({ name, value }))
    const made = await admin.createTopics({
      topics: [{ topic, numPartitions: partitions, replicationFactor: 1, configEntries }]
    })
    // It answers false, and not with an error, where the topic is there already.
    if (!made) throw Object.assign(new Error('there already'), { code: 36 })
  },
  delete_topic: async ({ topic }) => admin.deleteTopics({ topics: [topic] }),
  topics: async () => admin.listTopics(),
  produce: async ({ topic, records, codec, acks, idempotent }) => {
    const producer = kafka.producer({ idempotent, maxInFlightRequests: idempotent ? 1 : undefined })
    await producer.connect()
    try {
      const found = await producer.send({
        topic,
        acks,
        compression: codecs[codec],
        messages: records.map(each => ({
          key: bytes(each.key),
          value: bytes(each.value),
          headers: Object.fromEntries(each.headers.map(([name, value]) => [name, bytes(value)])),
          partition: each.partition,
          ...(each.timestamp === null ? {} : { timestamp: String(each.timestamp) })
        }))
      })
      const next = new Map((found ?? []).map(each => [each.partition, Number(each.baseOffset)]))
      return records.map(({ partition }) => {
        if (!next.has(partition)) return [partition, -1]
        const offset = next.get(partition)
        next.set(partition, offset + 1)
        return [partition, offset]
      })
    } finally {
      await producer.disconnect()
    }
  },
  consume: async ({ topic, partition, offset, timestamp, count }) => {
    let place = offset ?? 0
    if (timestamp !== null) {
      const found = await admin.fetchTopicOffsetsByTimestamp(topic, timestamp)
      place = Number(found.find(each => each.partition === partition).offset)
    }
    return read(topic, `r-${topic}-${Math.random()}`, count, false, partition, place)
  },
  transact: async ({ topic, id, records, commit }) => {
    const producer = kafka.producer({ transactionalId: id, maxInFlightRequests: 1, idempotent: true })
    await producer.connect()
    try {
      const transaction = await producer.transaction()
      const messages = records.map(each => ({ value: bytes(each.value), partition: each.partition }))
      await transaction.send({ topic, messages })
      await (commit ? transaction.commit() : transaction.abort())
    } finally {
      await producer.disconnect()
    }
  },
  // It reads committed records by default.
  consume_committed: async ({ topic, partition, count }) =>
    read(topic, `c-${topic}-${Math.random()}`, count, false, partition, 0),
  consume_in_group: async ({ topic, group, count }) => read(topic, group, count, true, null, null),
  offsets: async ({ topic, partition }) => {
    const found = await offsetsOf(topic, partition)
    return [found.low, found.high]
  },
  offset_at: async ({ topic, partition, timestamp }) =>
    (await admin.fetchTopicOffsetsByTimestamp(topic, timestamp)).find(
      each => each.partition === partition
    ).offset,
  delete_records: async ({ topic, partition, offset }) => {
    await offsetsOf(topic, partition) // it knows leaders only of topics that it has asked about
    await admin.deleteTopicRecords({ topic, partitions: [{ partition, offset: String(offset) }] })
    return (await offsetsOf(topic, partition)).low
  },
  config: async ({ topic }) => {
    const found = await admin.describeConfigs({
      includeSynonyms: false,
      resources: [{ type: ConfigResourceTypes.TOPIC, name: topic }]
    })
    return Object.fromEntries(
      found.resources[0].configEntries.map(each => [each.configName, each.configValue])
    )
  },
  set_config: async ({ topic, key, value }) =>
    void (await admin.alterConfigs({
      validateOnly: false,
      resources: [
        { type: ConfigResourceTypes.TOPIC, name: topic, configEntries: [{ name: key, value }] }
      ]
    }))
}, codeOf)
