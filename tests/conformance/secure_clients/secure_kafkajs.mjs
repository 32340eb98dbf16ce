// kafkajs with the security settings of each request.
import { readFileSync } from 'node:fs'
import kafkajs from 'kafkajs'
import { serve } from './lines.mjs'

const { Kafka, logLevel } = kafkajs
const wait = 30000

function connected (login) {
  const options = { clientId: 'kafkajs', brokers: [login.bootstrap], logLevel: logLevel.NOTHING }
  if (login.ca) {
    options.ssl = { ca: [readFileSync(login.ca)] }
    if (login.cert) Object.assign(options.ssl, { cert: readFileSync(login.cert), key: readFileSync(login.key) })
  }
  if (login.mechanism === 'OAUTHBEARER') {
    options.sasl = { mechanism: 'oauthbearer', oauthBearerProvider: async () => ({ value: login.token }) }
  } else if (login.mechanism) {
    options.sasl = { mechanism: login.mechanism.toLowerCase(), username: login.user, password: login.password }
  }
  return new Kafka({ ...options, retry: { retries: login.is_bad ? 0 : 5, initialRetryTime: 50 } })
}

async function read (kafka, topic) {
  const consumer = kafka.consumer({ groupId: topic, maxWaitTimeInMs: 50 })
  const found = []
  await consumer.connect()
  try {
    await consumer.subscribe({ topics: [topic], fromBeginning: true })
    await new Promise((resolve, reject) => {
      setTimeout(() => reject(new Error(`${found.length} records`)), wait).unref()
      consumer.on(consumer.events.CRASH, event => reject(event.payload.error))
      consumer
        .run({
          eachMessage: async ({ message }) => {
            found.push(message.value.toString())
            if (found.length === 3) resolve()
          }
        })
        .catch(reject)
    })
  } finally {
    await consumer.disconnect()
  }
  return found
}

await serve(
  {
    round_trip: async ({ login, topic }) => {
      const kafka = connected(login)
      const admin = kafka.admin()
      await admin.connect()
      await admin.createTopics({ topics: [{ topic, numPartitions: 1, replicationFactor: 1 }] })
      await admin.disconnect()
      const producer = kafka.producer()
      await producer.connect()
      for (let number = 0; number < 3; number++) {
        await producer.send({ topic, messages: [{ value: `value-${number}` }] })
      }
      await producer.disconnect()
      return read(kafka, topic)
    },
    login: async ({ login }) => {
      const admin = connected(login).admin()
      try {
        await admin.connect()
        return (await admin.describeCluster()).clusterId
      } finally {
        await admin.disconnect()
      }
    }
  },
  () => -1
)
