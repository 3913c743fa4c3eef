// A database with something on every screen of the page, with long names where users choose them.

import { addEndpoint } from './endpoints.js';
import { makeBlocked, makeDead, makeRetrying } from './letters.js';
import { makeQueue } from './outbox.js';
import type { TestDatabase } from './postgres.js';
import { startReplay } from './replays.js';
import { fillNow } from './reports.js';

/** Each screen with some content; for each path, an element that shows that the screen is ready. */
export async function fillScreens(db: TestDatabase): Promise<[place: string, sign: string][]> {
  const queue = await makeQueue(db, { whenDead: 'block' });
  const [, behind = ''] = await makeBlocked(queue, 'a-key-that-is-'.repeat(20));
  const other = await makeQueue(db);
  const [dead = ''] = await makeDead(other, 3, 'code-'.repeat(30), {
    payload: { long: 'x'.repeat(5000) },
    headers: { traceparent: '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01' },
  });
  await makeRetrying(other, 2);
  await db.query(`SELECT ${db.quoted}.set_paused($1, true, $2)`, [
    other.name,
    'operator-'.repeat(20),
  ]);
  await db.query(
    `WITH shadow AS (SELECT ${db.quoted}.define_destination('rolled.shadow', 'shadow') AS id)
     INSERT INTO ${db.quoted}.rollouts (name, destination_id, shadow_destination_id, shadow)
     SELECT repeat('rollout-', 6), $1, id, true FROM shadow`,
    [other.id],
  );
  await startReplay(db, other.name, {
    topic: 'a-topic-that-is-'.repeat(10),
    actor: 'api:operator',
  });
  // nothing runs it, and it shall not look as if it did
  await db.query(`UPDATE ${db.quoted}.replays SET moved_at = moved_at - interval '1 hour'`);
  const endpoint = await addEndpoint(db, {
    url: `https://example.com/${'a-long-path/'.repeat(12)}`,
    tenantId: 'tenant-'.repeat(20),
    description: 'description '.repeat(15),
  });
  await db.query(
    `INSERT INTO ${db.quoted}.relays (id, name, version, configuration, destinations, started_at, heartbeat_at)
     VALUES (gen_random_uuid(), repeat('relay-', 10), '0.2.0', 'c', $1, now(), now() + interval '1 hour')`,
    [[queue.name, other.name]],
  );
  // for ten minutes after now too, so that a slow test sees rates as a fast one does; a slice each minute only, because
  // the samples of errors and times read all of them before the tries
  await db.query(
    `INSERT INTO ${db.quoted}.statistics (slice, destination_id, delivered, retried, died)
     SELECT date_bin('10 seconds', now(), 'epoch') + n * interval '10 seconds', $1, 5, 2, 3
       FROM generate_series(-12, 60) n WHERE n <= 0 OR n % 6 = 0`,
    [other.id],
  );
  await fillNow(db);
  return [
    ['overview', '.list-panel li'],
    ['messages', 'tbody tr'],
    ['messages?status=dead&last=60', 'tbody tr'],
    ['tail', '.live-state.on'],
    [`messages/${dead}`, '.journey li'],
    [`messages/${behind}`, '.explanations li'],
    ['dead-letters', 'tbody tr'],
    ['keys', 'tbody tr'],
    ['destinations', 'tbody tr'],
    [`destinations/${other.name}`, '.histogram'],
    ['endpoints', 'tbody tr'],
    [`endpoints/${endpoint.name}`, '.endpoint-facts'],
    ['replays', 'tbody tr'],
    [`rollouts?rollout=${'rollout-'.repeat(6)}`, 'tbody tr'],
    ['events', 'tbody tr'],
    [`events?topic=${other.topic}`, '.event-facts'],
    ['flow', 'tbody tr'],
    ['reports', 'tbody tr'],
    ['reports/destinations?period=7d&sort=p95Ms', 'tbody tr'],
    ['reports/tenants?period=30d', 'tbody tr'],
    ['relays', 'tbody tr'],
    ['database', 'tbody tr'],
    ['audit', 'tbody tr'],
  ];
}
