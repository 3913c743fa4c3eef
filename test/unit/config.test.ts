// The configuration is checked before anything starts. Each refusal names the key, shows the value and says what is
// allowed.

import { mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';

import { afterEach, beforeEach, describe, expect, it, onTestFinished, vi } from 'vitest';

import { loadConfig } from '../../src/cli/config-file.js';
import { createRelay, resolveConfig } from '../../src/config.js';
import type { Config } from '../../src/config.js';
import { batchHandler, handler } from '../../src/destinations/handler.js';
import { kafka } from '../../src/destinations/kafka/index.js';
import { handler as namedHandler, webhook } from '../../src/index.js';
import type { WebhookOptions } from '../../src/index.js';
import type { DestinationSettings } from '../../src/destinations/destination.js';
import { ConfigurationError } from '../../src/core/errors.js';
import type { RelayOptions } from '../../src/relay/options.js';

const here = handler(() => undefined);
const sound: Config = { destinations: { here }, routes: [{ topic: 'user.*', to: 'here' }] };

/** The text of the refusal, or `accepted`; other errors are rethrown. */
function refusalOf(work: () => unknown): string {
  try {
    work();
  } catch (error) {
    if (error instanceof ConfigurationError && error.code === 'configuration_invalid')
      return error.message;
    throw error;
  }
  return 'accepted';
}

/** Passes the invalid part as a caller without types would. */
function refusal(part: object): string {
  return refusalOf(() => resolveConfig({ ...sound, ...part }));
}

describe('defaults', () => {
  it('N10 P9 C9 destinations and routes are enough: everything else has a default', () => {
    const { relay, retention, destinations, database } = resolveConfig(sound);
    expect(relay).toMatchObject({ leaseMs: 30_000, listen: true });
    expect(retention).toMatchObject({
      messagesDays: 7,
      at: '02:00',
      batchSize: 1000,
      pauseMs: 100,
    });
    expect(database).toMatchObject({
      schema: 'outbox',
      statementTimeoutMs: 30_000,
      lockTimeoutMs: 10_000,
      idleInTransactionTimeoutMs: 60_000,
    });
    expect(destinations['here']?.settings).toMatchObject({
      timeoutMs: 30_000,
      retry: { retryBaseMs: 1000, retryMaxMs: 300_000 },
    });
  });

  it('W3 a list of n delays means n + 1 attempts', () => {
    const delaysMs = [60_000, 300_000, 900_000, 3_600_000, 7_200_000];
    expect(handler(() => undefined, { retry: { delaysMs } }).settings.retry).toMatchObject({
      maxAttempts: 6,
      retryDelaysMs: delaysMs,
    });
  });
});

describe('a destination with refused options', () => {
  const wrong = [
    [
      webhook({ url: 'https://example.com/', retires: 3 } as WebhookOptions),
      /webhook\.retires is not an option: use /,
    ],
    [webhook({ url: 'somewhere' }), /webhook\.url is /],
    [
      namedHandler(() => undefined, { concurrency: 0 }),
      /handler\.concurrency is 0: give a whole number/,
    ],
    [kafka({ brokers: [], topic: 'a' }), /kafka\.brokers is \[\]/],
  ] as const;

  it.each(wrong)(
    'is named in the error of the configuration that contains it: %#',
    (partner, words) => {
      const text = refusal({ destinations: { here, partner } });
      expect(text).toMatch(/^config\.destinations\.partner: /);
      expect(text).toMatch(words);
    },
  );

  it('throws the error wherever else it is used', () => {
    const [[partner]] = wrong;
    expect(() => partner.kind).toThrow(/^webhook\.retires is not an option/);
    expect(() => ({ ...partner })).toThrow(ConfigurationError);
  });
});

describe('refusals', () => {
  it.each<[string, object, RegExp]>([
    [
      'config',
      { relays: {} },
      /^config\.relays is not an option: use .*destinations, routes, relay/,
    ],
    ['relay', { relay: { pollSeconds: 5 } }, /^relay\.pollSeconds is not an option: use .*pollMs/],
    ['database', { database: { host: 'x' } }, /^database\.host is not an option: use .*url/],
    [
      'retention',
      { retention: { days: 7 } },
      /^retention\.days is not an option: use messagesDays/,
    ],
    [
      'a route',
      { routes: [{ topic: 'a', to: 'here', priority: 1 }] },
      /^routes\[0\]\.priority is not an option: use topic, to/,
    ],
  ])('an unknown key of %s is refused with the list of known keys', (_where, part, words) => {
    expect(refusal(part)).toMatch(words);
  });

  it.each<[RelayOptions, RegExp]>([
    [{ leaseMs: 999 }, /^relay\.leaseMs is 999: give a whole number from 1000 to 3600000$/],
    [{ batchSize: 0 }, /^relay\.batchSize is 0: give a whole number from 1 to 10000$/],
    [{ batchSize: 1.5 }, /^relay\.batchSize is 1\.5: give a whole number/],
    [{ batchSize: '5' as unknown as number }, /^relay\.batchSize is "5": give a whole number/],
    [{ concurrency: Number.NaN }, /^relay\.concurrency is NaN: give a whole number/],
    [{ concurrency: -1 }, /^relay\.concurrency is -1: give a whole number from 1/],
    [{ fallbackPollMs: 5 }, /^relay\.fallbackPollMs is 5: give a whole number from 10/],
    [{ pollMs: null as unknown as number }, /^relay\.pollMs is null: give a whole number/],
    [{ listen: 'yes' as unknown as boolean }, /^relay\.listen is "yes": give true or false$/],
    [{ tenantIds: [] }, /^relay\.tenantIds is \[\]: give a list of 1 to 10000 values$/],
    [{ tenantIds: [''] }, /^relay\.tenantIds\[0\] is "": give a tenant id$/],
    [{ name: '' }, /^relay\.name is "": give a name$/],
  ])('a relay with %j is refused with the key, the value and the range', (relay, words) => {
    expect(refusal({ relay })).toMatch(words);
  });

  it.each<[RelayOptions, RegExp]>([
    [
      { leaseMs: 1000, pollMs: 334 },
      /^relay\.pollMs is 334: .*third of relay\.leaseMs \(1000\), which is 333$/,
    ],
    [
      { leaseMs: 1000, fallbackPollMs: 500 },
      /^relay\.fallbackPollMs is 500: .*third of relay\.leaseMs \(1000\)/,
    ],
    [{ leaseMs: 1500, reapMs: 501 }, /^relay\.reapMs is 501: .*third of relay\.leaseMs \(1500\)/],
  ])('M12 a poll above a third of the lease is refused: %j', (relay, words) => {
    expect(refusal({ relay })).toMatch(words);
  });

  it('M12 a poll of exactly a third of the lease is accepted', () => {
    const relay = { leaseMs: 1500, pollMs: 500, fallbackPollMs: 500, reapMs: 500 };
    expect(resolveConfig({ ...sound, relay }).relay).toMatchObject(relay);
  });

  it('P7 a relay with neither polling nor notifications is refused', () => {
    expect(refusal({ relay: { listen: false, fallbackPollMs: null } })).toMatch(
      /^relay\.listen is false and relay\.fallbackPollMs is null: nothing would ever wake the relay/,
    );
  });

  it.each<[object, RegExp]>([
    [{ relay: { sleep: { afterMs: 10 } } }, /^relay\.sleep\.afterMs is 10: give a whole number/],
    [
      { relay: { sleep: {}, namespace: 'shop' } },
      /^relay\.sleep is given, and this relay serves only some tenants or one namespace/,
    ],
    [
      { relay: { sleep: {} }, database: { replicaUrl: 'postgresql://standby/app' } },
      /^config\.relay\.sleep is given, and database\.replicaUrl too/,
    ],
    [
      {
        relay: { sleep: {} },
        destinations: { here: handler(() => undefined, { mode: 'stream' }) },
      },
      /^config\.relay\.sleep is given, and config\.destinations\.here\.mode is "stream"/,
    ],
  ])(
    'X3 a relay that may sleep is refused beside what needs one that is awake: %j',
    (part, words) => {
      expect(refusal(part)).toMatch(words);
    },
  );

  it.each<[unknown, RegExp]>([
    [undefined, /^routes is undefined: give a list/],
    [{ topic: 'a' }, /^routes is .*: give a list/],
    [[null], /^routes\[0\]\.topic is undefined: give an exact topic/],
    [[{ to: 'here' }], /^routes\[0\]\.topic is undefined: give an exact topic/],
    [
      [{ topic: 'a b', to: 'here' }],
      /^routes\[0\]\.topic is "a b": give an exact topic, 'user\.\*' or '\*'$/,
    ],
    [[{ topic: '*.created', to: 'here' }], /^routes\[0\]\.topic is "\*\.created"/],
    [[{ topic: 'user*', to: 'here' }], /^routes\[0\]\.topic is "user\*"/],
    [[{ topic: 'a' }], /^routes\[0\]\.to is undefined: give the name of a destination$/],
    [
      [
        { topic: 'a', to: 'here' },
        { topic: 'a', to: 'there' },
      ],
      /^routes\[1\]\.to is "there", which is no destination: use here$/,
    ],
    [
      [{ topic: 'a', to: 'here', namespace: '' }],
      /^routes\[0\]\.namespace is "": give a namespace$/,
    ],
  ])('routes to missing destinations are refused: %j', (routes, words) => {
    expect(refusal({ routes })).toMatch(words);
  });

  it('W6 a rollout has exactly one destination with deliveries, and a free name for its shadow', () => {
    const route = (to: string) => ({ topic: 'a', to, rollout: 'r' });
    const there = handler(() => {}, { mode: 'stream' });
    expect(
      refusal({ destinations: { here, there: here }, routes: [route('here'), route('there')] }),
    ).toMatch(
      /^routes\[1\]\.rollout is "r": it leads to here already: give the routes to there a rollout of their own$/,
    );
    expect(refusal({ destinations: { there }, routes: [route('there')] })).toMatch(
      /^the rollout "r" leads to there, whose mode is "stream": use mode "deliver"/,
    );
    expect(refusal({ destinations: { here, 'r.shadow': here }, routes: [route('here')] })).toMatch(
      /^config\.destinations has the name "r\.shadow", which the shadow of the rollout "r" needs/,
    );
    expect(refusal({ routes: [{ ...route('here'), rollout: 'a.b' }] })).toMatch(
      /^routes\[0\]\.rollout is "a\.b": give a name of letters/,
    );
  });

  it.each(['', '.hidden', '-dash', 'a b', 'a/b', 'x'.repeat(64), 'ä'])(
    'a destination cannot be called %j',
    (name) => {
      expect(refusal({ destinations: { [name]: here }, routes: [] })).toMatch(
        /^config\.destinations has the name ".*: use letters, digits, _ - and \., at most 63$/,
      );
    },
  );

  it.each(['a', '_a', '7', 'crm.eu-1', 'x'.repeat(63)])(
    'a destination can be called %j',
    (name) => {
      expect(
        resolveConfig({ destinations: { [name]: here }, routes: [] }).destinations,
      ).toHaveProperty([name]);
    },
  );

  it.each([undefined, null, 'crm', 7])('destinations cannot be %j', (destinations) => {
    expect(refusal({ destinations })).toMatch(
      /^config\.destinations is .*: give an object such as/,
    );
  });

  it.each([
    null,
    undefined,
    () => undefined,
    { url: 'https://example.com' },
    'https://example.com',
  ])('a destination that no factory made is refused: %j', (destination) => {
    expect(refusal({ destinations: { here: destination } })).toMatch(
      /^config\.destinations\.here is .*: make it with handler\(\), webhook\(\) or the like$/,
    );
  });

  it.each<[DestinationSettings & { batchSize?: number }, RegExp]>([
    [{ concurrency: 0 }, /^batchHandler\.concurrency is 0: give a whole number from 1 to 10000$/],
    [{ timeoutMs: 0 }, /^batchHandler\.timeoutMs is 0: give a whole number from 1/],
    [{ batchSize: 0 }, /^batchHandler\.batchSize is 0: give a whole number from 1/],
    [
      { retry: { maxAttempts: 0 } },
      /^batchHandler\.retry\.maxAttempts is 0: give a whole number from 1/,
    ],
    [
      { retry: { delaysMs: [] } },
      /^batchHandler\.retry\.delaysMs is \[\]: give a list of 1 to 100/,
    ],
    [
      { retry: { delaysMs: [-1] } },
      /^batchHandler\.retry\.delaysMs\[0\] is -1: give a whole number from 0/,
    ],
    [
      { retry: { delaysMs: [1], maxAttempts: 3 } },
      /^batchHandler\.retry\.maxAttempts is not an option/,
    ],
    [{ retry: null as unknown as object }, /^batchHandler\.retry is null/],
  ])('settings of a destination are checked: %j', (settings, words) => {
    expect(refusalOf(() => batchHandler(() => Promise.resolve(), settings))).toMatch(words);
  });

  it.each([undefined, null, 'function', {}])('a handler must be a function, not %j', (wrong) => {
    expect(() => handler(wrong as never)).toThrow(/^handler is .*: give a function/);
    expect(() => batchHandler(wrong as never)).toThrow(/^batchHandler is .*: give a function/);
  });

  it.each<[object, RegExp]>([
    [{ messagesDays: 0 }, /^retention\.messagesDays is 0: give a whole number from 1/],
    [{ inboxDays: 29 }, /^retention\.inboxDays is 29: give a whole number from 30/],
    [{ dedupeKeysDays: 29 }, /^retention\.dedupeKeysDays is 29: give a whole number from 30/],
    [{ keysDays: 29 }, /^retention\.keysDays is 29: give a whole number from 30/],
    [
      { keysDays: 60, messagesDays: 61 },
      /^retention\.keysDays is 60: give at least retention\.messagesDays \(61\), or null for ever$/,
    ],
    [
      { keysDays: 60, messagesDays: null },
      /^retention\.keysDays is 60: give at least retention\.messagesDays \(for ever\)/,
    ],
    [{ at: '25:00' }, /^retention\.at is "25:00": give a time of day such as 02:00$/],
    [{ at: '2:00' }, /^retention\.at is "2:00"/],
    [{ batchSize: 0 }, /^retention\.batchSize is 0: give a whole number from 1/],
  ])('a retention of %j is refused', (retention, words) => {
    expect(refusal({ retention })).toMatch(words);
  });

  it.each(['', 'x'.repeat(64), 'ä'.repeat(32), 'a\u0000b', 7])(
    'a schema cannot be called %j',
    (schema) => {
      expect(refusal({ database: { schema } })).toMatch(/^database\.schema is .*1 to 63 bytes$/);
    },
  );

  it('createRelay refuses the same mistakes as a configuration file', () => {
    expect(() => createRelay({ ...sound, relay: { pollMs: 0 } })).toThrow(/^relay\.pollMs is 0/);
  });
});

// the first file also pays for loading the TypeScript loader
describe('files', { timeout: 60_000 }, () => {
  let directory: string;
  const startedIn = process.cwd();
  beforeEach(() => {
    directory = mkdtempSync(path.join(os.tmpdir(), 'waybill-config-'));
  });
  afterEach(() => {
    process.chdir(startedIn);
    rmSync(directory, { recursive: true, force: true });
  });

  function write(name: string, source: string): string {
    const file = path.join(directory, name);
    mkdirSync(path.dirname(file), { recursive: true });
    writeFileSync(file, source);
    return file;
  }

  it('a TypeScript file is loaded directly, including imports of its neighbours', async () => {
    write('topics.ts', "export const topic: string = 'user.*';\n");
    const file = write(
      'waybill.config.ts',
      `import { topic } from './topics.js';
       type Route = { topic: string; to: string };
       const routes: Route[] = [{ topic, to: 'here' } satisfies Route];
       export default { destinations: {}, routes };`,
    );
    expect(await loadConfig(file)).toEqual({
      destinations: {},
      routes: [{ topic: 'user.*', to: 'here' }],
    });
  });

  it.each(['waybill.config.mjs', 'waybill.config.mts'])('%s is loaded', async (name) => {
    const file = write(name, 'export default { destinations: {}, routes: [] };');
    expect(await loadConfig(file)).toEqual({ destinations: {}, routes: [] });
  });

  it('a TypeScript file leaves no copy in the temporary directory', async () => {
    const temporary = path.join(directory, 'tmp');
    mkdirSync(temporary);
    vi.stubEnv('TMPDIR', temporary);
    onTestFinished(() => void vi.unstubAllEnvs());
    const file = write('secret.config.ts', 'export default { destinations: {}, routes: [] };\n');
    await loadConfig(file);
    expect(readdirSync(temporary)).toEqual([]);
  });

  it('without a name the file of the current directory is used', async () => {
    write(
      'waybill.config.mjs',
      "export default { destinations: {}, routes: [{ topic: 'found' }] };",
    );
    process.chdir(directory);
    expect(await loadConfig()).toMatchObject({ routes: [{ topic: 'found' }] });
  });

  it('a missing file is named in the error; without a name the error says what to do', async () => {
    await expect(loadConfig(path.join(directory, 'none.ts'))).rejects.toThrow(
      /^the configuration file .*none\.ts does not exist$/,
    );
    process.chdir(directory);
    await expect(loadConfig()).rejects.toThrow(
      /^no configuration: there is no waybill\.config\.ts here; .*--config FILE$/,
    );
  });

  it.each([
    ['no default export', 'export const config = {};'],
    ['a default export that is not an object', 'export default 7;'],
  ])('a file with %s is refused with the correct form', async (_what, source) => {
    for (const name of ['waybill.config.mjs', 'waybill.config.ts']) {
      await expect(loadConfig(write(name, source))).rejects.toThrow(
        /^the configuration file .*waybill\.config\.m?[jt]s has no default export: write export default defineConfig/,
      );
    }
  });

  it.each([
    ['throws', "throw new Error('DATABASE_URL is missing');", 'DATABASE_URL is missing'],
    ['imports a missing module', "import 'no-such-package-here';", 'no-such-package-here'],
  ])('a file that %s is refused with its own error', async (_what, source, reason) => {
    for (const name of ['a.mjs', 'a.ts']) {
      const error = (await loadConfig(write(name, source)).catch((e: unknown) => e)) as Error;
      expect(error).toBeInstanceOf(ConfigurationError);
      expect(error.message).toMatch(/^the configuration file .* could not be loaded: /);
      expect(error.message).toContain(reason);
    }
  });
});
