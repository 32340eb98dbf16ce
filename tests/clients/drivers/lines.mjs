// One JSON request per line in, one JSON reply per line out, one after the other.
import { createInterface } from 'node:readline'

export const bytes = text => (text === null || text === undefined ? null : Buffer.from(text, 'base64'))
export const text = data => (data === null || data === undefined ? null : Buffer.from(data).toString('base64'))

export async function serve (operations, codeOf) {
  for await (const line of createInterface({ input: process.stdin })) {
    const request = JSON.parse(line)
    let reply
    try {
      reply = { result: (await operations[request.op](request)) ?? null }
    } catch (error) {
      reply = { code: codeOf(error) ?? null, text: String(error?.stack ?? error) }
    }
    process.stdout.write(JSON.stringify(reply) + '\n')
  }
  process.exit(0)
}
