// The part of a webhook's address after the host may be a secret. No log, metric or HTTP response contains it, also when
// every webhook fails. Only the screens of a destination and of a request show its plain words
// (unit/shown-address.test.ts).

import { randomUUID } from 'node:crypto';

import { expect, it } from 'vitest';

import { addToken } from '../../src/features/tokens/database.js';
import { environmentOf, startCli, writeConfig } from '../support/cli.js';
import { addEndpoint, testKey } from '../support/endpoints.js';
import { deliver, sealNow } from '../support/audit.js';
import { makeQueue } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';
import { openDatabase, send } from '../support/relay.js';
import { serve } from '../support/relay-partner.js';
import { waitFor } from '../support/wait.js';

const db = testDatabase();
const network = `allowedNetworks: ['127.0.0.0/8']`;
const fails = ['answers', 'breaks'] as const;

it.each(fails)(
  'P13 N13 the paths of webhooks are not shown when each of them %s with an error',
  { timeout: 120_000 },
  async (how) => {
    const { url } = await serve((request, response) => {
      request.resume();
      if (how === 'breaks') request.socket.destroy();
      else response.writeHead(500).end(`Cannot POST ${request.url}`);
    });
    const address = (what: string): string =>
      new URL(`/geheim-${what}/geheimer-pfad?name=geheimes-wort`, url).href;
    const topic = `paths-${how}`;
    const config = writeConfig(`{
      destinations: { [${JSON.stringify(topic)}]: webhook({ url: '${address('ziel')}', ${network}, breaker: { failures: 1 } }) },
      routes: [{ topic: ${JSON.stringify(topic)}, to: ${JSON.stringify(topic)} }],
      endpoints: { ${network} },
      audit: { seal: true, delayMs: 0, everyMs: 1000, heads: { webhook: '${address('kette')}' } },
      alerts: { thresholds: { partitions_ahead: 1000 }, checkMs: 100, webhook: { url: '${address('alarm')}', ${network} } },
    }`);
    await deliver(await makeQueue(db), 3);
    await sealNow(db, 2);
    const { name } = await addEndpoint(db, { url: address('kunde'), topics: [topic] });
    const child = startCli(['start', '--verbose', '--config', config], {
      environment: { ...environmentOf(db), WAYBILL_SECRET_KEY: testKey },
    });
    await child.says('"msg":"serving"');
    await send(db, [{ topic }]);
    const said = [
      ...[topic, name].map((each) => `"destination":"${each}","messageId"`),
      'breaker_opened',
      'export heads to webhook',
      'alert_untold',
    ];
    for (const words of said) await child.says(words, 60_000);
    const port = /"url":"(http:[^"]+)"/.exec(child.stderr)?.[1] ?? '';
    const token = await addToken(openDatabase(db), { name: randomUUID(), scope: 'admin' }, 'test');
    const headers = { authorization: `Bearer ${token}` };
    const answers = await Promise.all(
      [
        '/healthz',
        '/readyz',
        '/metrics',
        '/api/health',
        '/api/overview',
        '/api/relays',
        '/api/destinations',
      ].map(async (path) => (await fetch(`${port}${path}`, { headers })).text()),
    );
    expect(answers[0], 'numbers without names').not.toMatch(/127\.0\.0\.1|paths-|ep_|webhook/);
    expect(answers[3], 'the reasons').toContain(`webhook ${new URL(url).origin} (`);
    const deliveries = await waitFor(
      async () => {
        const { rows } = await db.query<{ text: string }>(
          `SELECT string_agg(a::text, ' ') AS text FROM ${db.quoted}.attempt_log a WHERE destination = ANY ($1)`,
          [[topic, name]],
        );
        return rows[0]?.text;
      },
      { what: 'the attempts' },
    );
    child.process.kill('SIGTERM');
    const { stdout, stderr } = await child.ended();
    for (const text of [...answers, deliveries, stdout, stderr]) expect(text).not.toMatch(/geheim/);
  },
);
