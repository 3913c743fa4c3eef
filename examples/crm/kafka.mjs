// Publishes rows of the outbox to Kafka with kafkajs: a batch in one call. kafkajs says only that a batch failed. Its
// topics are then tried one by one, and the halves of a topic that fails, until the refused rows are alone; so each row
// has its own success or failure. Rows that Kafka had already taken may then arrive twice, with the same id.

import kafkajs from 'kafkajs';

const { Kafka, Partitioners, logLevel } = kafkajs;

/** These concern the connection, and so all rows: smaller batches would fail too. */
const connectionErrors = new Set([
  'KafkaJSBrokerNotFound',
  'KafkaJSConnectionClosedError',
  'KafkaJSConnectionError',
  'KafkaJSLockTimeout',
  'KafkaJSRequestTimeoutError',
]);

/** @typedef {import('./worker.mjs').Row} Row */

/** @param {string} brokers `host:port`, separated by commas */
export async function connectKafka(brokers) {
  const kafka = new Kafka({
    clientId: 'crm-outbox',
    brokers: brokers.split(','),
    logLevel: logLevel.NOTHING,
    requestTimeout: 15_000,
    retry: { retries: 2, initialRetryTime: 100 },
  });
  const producer = kafka.producer({
    allowAutoTopicCreation: false,
    createPartitioner: Partitioners.DefaultPartitioner,
  });
  await producer.connect();
  return {
    /** @param {Row[]} rows */
    publish: (rows) => publish(producer, rows),
    close: () => producer.disconnect(),
  };
}

/** @returns {Promise<import('./worker.mjs').Published>} */
async function publish(producer, rows) {
  const topics = [...groupByTopic(rows)];
  try {
    await producer.sendBatch({
      topicMessages: topics.map(([topic, group]) => ({ topic, messages: group.map(recordOf) })),
    });
    return { accepted: rows.map(({ id }) => id), failed: {} };
  } catch (error) {
    const published = { accepted: [], failed: {} };
    if (rows.length === 1 || concernsConnection(error)) {
      for (const { id } of rows) published.failed[id] = String(error);
      return published;
    }
    const middle = Math.ceil(rows.length / 2);
    const parts =
      topics.length > 1
        ? topics.map(([, group]) => group)
        : [rows.slice(0, middle), rows.slice(middle)];
    // one after the other, to keep the order
    for (const part of parts) {
      const { accepted, failed } = await publish(producer, part);
      published.accepted.push(...accepted);
      Object.assign(published.failed, failed);
    }
    return published;
  }
}

/** `contact.created` goes to the Kafka topic `crm.contact.created`. */
function groupByTopic(rows) {
  const topics = new Map();
  for (const row of rows) {
    const name = `crm.${row.topic}`;
    if (!topics.has(name)) topics.set(name, []);
    topics.get(name).push(row);
  }
  return topics;
}

/** The key keeps the rows of a tenant in order. */
function recordOf({ id, tenant_id, topic, payload }) {
  return {
    key: tenant_id,
    value: JSON.stringify(payload),
    headers: { 'waybill-id': id, 'waybill-topic': topic },
  };
}

function concernsConnection(error) {
  for (let each = error; each instanceof Error; each = each.cause)
    if (connectionErrors.has(each.name)) return true;
  return false;
}
