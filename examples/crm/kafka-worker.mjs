// The CRM's worker as a program for cron: drains the outbox to Kafka and ends. Needs DATABASE_URL and KAFKA_BROKERS; with
// TENANT, only the rows of that tenant. Ends with 1 if a row could not be published.

import pg from 'pg';

import { connectKafka } from './kafka.mjs';
import { drain, overSql } from './worker.mjs';

const { DATABASE_URL, KAFKA_BROKERS, TENANT } = process.env;
if (!KAFKA_BROKERS)
  throw new Error('KAFKA_BROKERS is not set: give host:port, separated by commas');

// before anything is claimed: without Kafka, nothing is
const kafka = await connectKafka(KAFKA_BROKERS);
const client = new pg.Client({ connectionString: DATABASE_URL });
try {
  await client.connect();
  const report = await drain(overSql(client), kafka.publish, { tenant: TENANT });
  console.log(JSON.stringify(report));
  if (report.failed > 0) process.exitCode = 1;
} finally {
  await client.end();
  await kafka.close();
}
