// Transactional producers of kafkajs, each call made on request.
// A line of input is a producer's name, a call and its arguments; the line of output is "=" and the error, if any.
const readline = require('node:readline')
const { Kafka, logLevel } = require('kafkajs')

const producers = new Map()

async function start(name, [bootstrap, transactionalId, topic, group, timeout]) {
  const kafka = new Kafka({ brokers: [bootstrap], logLevel: logLevel.NOTHING })
  const producer = kafka.producer({ transactionalId, transactionTimeout: Number(timeout), maxInFlightRequests: 1 })
  producers.set(name, { producer, topic, group, transaction: null })
  await producer.connect()
}

async function make(name, call, words) {
  if (call === 'start') return start(name, words)
  const of = producers.get(name)
  switch (call) {
    case 'begin':
      of.transaction = await of.producer.transaction()
      return
    case 'send': {
      const messages = [{ partition: Number(words[0]), value: words[1] }]
      return of.transaction.send({ topic: of.topic, messages, acks: -1 })
    }
    case 'offsets': {
      const topics = [{ topic: of.topic, partitions: [{ partition: 0, offset: words[0] }] }]
      return of.transaction.sendOffsets({ consumerGroupId: of.group, topics })
    }
    case 'commit':
      return of.transaction.commit()
    case 'abort':
      return of.transaction.abort()
    case 'close':
      return of.producer.disconnect()
  }
  throw new Error(call)
}

async function told(line) {
  const [name, call, ...words] = line.split(' ')
  try {
    await make(name, call, words)
    return ''
  } catch (error) {
    return error.type ? `${error.name} ${error.type}` : error.name
  }
}

async function main() {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    process.stdout.write(`= ${await told(line)}\n`)
  }
  process.exit(0)
}

main()
