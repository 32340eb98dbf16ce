// Node 20 lacks this; the package expects a newer one and works with it.
Promise.withResolvers ??= function () {
  let resolve, reject
  const promise = new Promise((yes, no) => { resolve = yes; reject = no })
  return { promise, resolve, reject }
}
const { Admin, Consumer, Producer } = await import('@platformatic/kafka')
const { bytes, serve, text } = await import('./lines.mjs')

const common = { clientId: 'platformatic', bootstrapBrokers: [process.argv[2]], retries: 5, retryDelay: 100 }
const admin = new Admin(common)

function codeOf (error) {
  if (typeof error?.apiCode === 'number' && error.apiCode > 0) return error.apiCode
  for (const each of [...(error?.errors ?? []), error?.cause].filter(Boolean)) {
    const found = codeOf(each)
    if (found !== undefined) return found
  }
}

const rowOf = message => ({
  key: text(message.key),
  value: text(message.value),
  headers: [...message.headers].map(([name, value]) => [name.toString(), text(value)]),
  timestamp: Number(message.timestamp),
  partition: message.partition,
  offset: Number(message.offset)
})

async function read (group, options, count, partition, commits) {
  const consumer = new Consumer({ ...common, groupId: group, maxWaitTime: 50 })
  const found = []
  try {
    const stream = await consumer.consume({ autocommit: false, ...options })
    for await (const message of stream) {
      if (partition !== null && message.partition !== partition) continue
      found.push(message)
      if (found.length === count) break
    }
    if (commits) {
      const last = new Map(found.map(message => [message.partition, message]))
      for (const message of last.values()) await message.commit()
    }
  } finally {
    await consumer.close(true)
  }
  return found.map(rowOf)
}

async function listed (topic, partition, timestamp) {
  const found = await admin.listOffsets({
    topics: [{ name: topic, partitions: [{ partitionIndex: partition, timestamp: BigInt(timestamp) }] }]
  })
  return Number(found[0].partitions[0].offset)
}

await serve({
  create_topic: async ({ topic, partitions, config }) =>
    void (await admin.createTopics({
      topics: [topic],
      partitions,
      replicas: 1,
      configs: Object.entries(config).map(([name, value]) => ({ name, value }))
    })),
  delete_topic: async ({ topic }) => admin.deleteTopics({ topics: [topic] }),
  topics: async () => admin.listTopics({ includeInternals: true }),
  produce: async ({ topic, records, codec, acks, idempotent }) => {
    const producer = new Producer({ ...common, autocreateTopics: true })
    try {
      const found = await producer.send({
        acks,
        compression: codec,
        idempotent,
        messages: records.map(each => ({
          topic,
          key: bytes(each.key) ?? undefined,
          value: bytes(each.value) ?? undefined,
          headers: new Map(each.headers.map(([name, value]) => [Buffer.from(name), bytes(value)])),
          partition: each.partition,
          ...(each.timestamp === null ? {} : { timestamp: BigInt(each.timestamp) })
        }))
      })
      const next = new Map((found.offsets ?? []).map(each => [each.partition, Number(each.offset)]))
      return records.map(({ partition }) => {
        if (!next.has(partition) || acks === 0) return [partition, -1]
        const offset = next.get(partition)
        next.set(partition, offset + 1)
        return [partition, offset]
      })
    } finally {
      await producer.close()
    }
  },
  consume: async ({ topic, partition, offset, timestamp, count }) => {
    const place = timestamp === null ? offset ?? 0 : await listed(topic, partition, timestamp)
    const options = {
      topics: [topic],
      mode: 'manual',
      offsets: [{ topic, partition, offset: BigInt(place) }],
      fallbackMode: 'earliest'
    }
    return read(`r-${topic}-${Math.random()}`, options, count, partition, false)
  },
  consume_in_group: async ({ topic, group, count }) =>
    read(group, { topics: [topic], mode: 'committed', fallbackMode: 'earliest' }, count, null, true),
  offsets: async ({ topic, partition }) => [await listed(topic, partition, -2), await listed(topic, partition, -1)],
  offset_at: async ({ topic, partition, timestamp }) => listed(topic, partition, timestamp),
  delete_records: async ({ topic, partition, offset }) => {
    const found = await admin.deleteRecords({
      topics: [{ name: topic, partitions: [{ partition, offset: BigInt(offset) }] }]
    })
    return Number(found[0].partitions[0].lowWatermark)
  },
  config: async ({ topic }) => {
    const found = await admin.describeConfigs({
      resources: [{ resourceType: 2, resourceName: topic, configurationKeys: null }]
    })
    return Object.fromEntries(found[0].configs.map(each => [each.name, each.value]))
  },
  set_config: async ({ topic, key, value }) =>
    void (await admin.incrementalAlterConfigs({
      resources: [
        { resourceType: 2, resourceName: topic, configs: [{ name: key, configOperation: 0, value }] }
      ]
    }))
}, codeOf)
