// @platformatic/kafka with the security settings of each request.
import { readFileSync } from 'node:fs'
// Node 20 lacks this; the package expects a newer one and works with it.
Promise.withResolvers ??= function () {
  let resolve, reject
  const promise = new Promise((yes, no) => { resolve = yes; reject = no })
  return { promise, resolve, reject }
}
const { Admin, Consumer, Producer, stringDeserializers, stringSerializers } = await import('@platformatic/kafka')
const { serve } = await import('./lines.mjs')

function optionsOf (login) {
  const options = {
    clientId: 'platformatic',
    bootstrapBrokers: [login.bootstrap],
    retries: login.is_bad ? 0 : 5,
    retryDelay: 100
  }
  if (login.ca) {
    options.tls = { ca: [readFileSync(login.ca)] }
    if (login.cert) Object.assign(options.tls, { cert: readFileSync(login.cert), key: readFileSync(login.key) })
  }
  if (login.mechanism === 'OAUTHBEARER') options.sasl = { mechanism: login.mechanism, token: login.token }
  else if (login.mechanism) {
    options.sasl = { mechanism: login.mechanism, username: login.user, password: login.password }
  }
  return options
}

async function read (options, topic) {
  const consumer = new Consumer({ ...options, groupId: topic, maxWaitTime: 50, deserializers: stringDeserializers })
  const found = []
  try {
    const stream = await consumer.consume({ topics: [topic], mode: 'earliest', autocommit: false })
    for await (const message of stream) {
      found.push(message.value)
      if (found.length === 3) break
    }
  } finally {
    await consumer.close(true)
  }
  return found
}

async function using (client, work) {
  try {
    return await work(client)
  } finally {
    await client.close()
  }
}

await serve(
  {
    round_trip: async ({ login, topic }) => {
      const options = optionsOf(login)
      await using(new Admin(options), admin => admin.createTopics({ topics: [topic], partitions: 1, replicas: 1 }))
      await using(new Producer({ ...options, serializers: stringSerializers }), async producer => {
        for (let number = 0; number < 3; number++) {
          await producer.send({ messages: [{ topic, value: `value-${number}` }] })
        }
      })
      return read(options, topic)
    },
    login: async ({ login }) => using(new Admin(optionsOf(login)), async admin => (await admin.metadata({})).id)
  },
  () => -1
)
