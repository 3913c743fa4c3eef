// storage: where the bytes of a message go. Loads messages with a payload of 200 bytes, each delivered once, and
// measures each table and index at three rates: a thousand and ten thousand a day, and a thousand a minute. From these
// follows the size after a year, with several retentions.

import type { Bench } from './harness/bench.js';
import { printSettings, printTable, progress, shown } from './harness/report.js';
import { fill, prepare, variants } from './storage/load.js';
import type { Parts, Rate, Variant } from './storage/load.js';

const rates = [
  { name: '1,000 a minute', perDay: 1_440_000, filled: 60_000 },
  { name: '10,000 a day', perDay: 10_000, filled: 10_000 },
  { name: '1,000 a day', perDay: 1000, filled: 1000 },
] as const;

/** How long messages and attempts are kept, in days. */
const retentions = [
  { name: '72 hours', messages: 3, attempts: 3 },
  { name: 'default: messages 7 days, attempts 30', messages: 7, attempts: 30 },
  { name: 'all year', messages: 365, attempts: 365 },
] as const;

const megabyte = 1e6;

type Measured = { variant: Variant; rate: Rate; parts: Parts };

export const storage: Bench = async (server, options) => {
  const measured: Measured[] = [];
  let emptyBytes = 0;
  for (const variant of options.tiny ? (['plain'] as const) : variants) {
    for (const rate of options.tiny ? rates.slice(2) : rates) {
      progress(`${variant}, ${rate.name} …`);
      const database = await server.createDatabase('storage');
      try {
        emptyBytes = await prepare(database, variant);
        const count = rate === rates[0] ? (options.messages ?? rate.filled) : rate.filled;
        measured.push({ variant, rate, parts: await fill(database.client, rate, count) });
      } finally {
        await database.drop();
      }
    }
  }
  return report(measured, emptyBytes);
};

function total(parts: Parts, table = ''): number {
  return Object.entries(parts)
    .filter(([part]) => part.startsWith(table))
    .reduce((sum, [, bytes]) => sum + bytes, 0);
}

function report(measured: readonly Measured[], emptyBytes: number) {
  const names = [...new Set(measured.map(({ variant }) => variant))];
  const found = [...new Set(measured.map(({ rate }) => rate))];
  const of = (variant: Variant, rate: Rate | undefined): Parts =>
    measured.find((one) => one.variant === variant && one.rate === rate)?.parts ?? {};
  printSettings('Storage', { emptyMegabytes: shown(emptyBytes / megabyte) });
  const [fastest] = found;
  const parts = [...new Set(names.flatMap((name) => Object.keys(of(name, fastest))))];
  printTable(
    [`bytes of a message at ${fastest?.name ?? ''}`, ...names],
    [
      ...parts.map((part) => [part, ...names.map((name) => of(name, fastest)[part] ?? 0)]),
      ['together', ...names.map((name) => total(of(name, fastest)))],
    ],
  );
  printTable(
    ['bytes of a message, together', ...names],
    found.map((rate) => [rate.name, ...names.map((name) => total(of(name, rate)))]),
  );
  const sizes = found.flatMap((rate) =>
    retentions.map((kept) => ({
      rate: rate.name,
      kept: kept.name,
      megabytes: Object.fromEntries(
        names.map((name) => {
          const day = (table: string): number =>
            (total(of(name, rate), table) * rate.perDay) / megabyte;
          // dedupe keys are kept for 30 days
          const keys = day('dedupe_keys') * Math.max(30, kept.messages);
          return [name, day('messages') * kept.messages + day('attempts') * kept.attempts + keys];
        }),
      ),
    })),
  );
  printTable(
    ['MB after a year', 'kept', ...names],
    sizes.map(({ rate, kept, megabytes }) => [
      rate,
      kept,
      ...names.map((name) => megabytes[name] ?? 0),
    ]),
  );
  const watched = sizes.find(({ kept }) => kept === '72 hours')?.megabytes['watched row'];
  return {
    waybill: measured.map(({ variant, rate, parts: bytes }) => ({
      variant,
      rate: rate.name,
      bytesPerMessage: total(bytes),
      parts: bytes,
    })),
    peers: {},
    limit: null,
    ratioToBestPeer: null,
    ratioToLimit: null,
    emptyBytes,
    sizes,
    aims: [
      {
        what: `bytes of a plain message with 200 bytes of payload, ${fastest?.name ?? ''}`,
        atMost: 500,
        actual: total(of('plain', fastest)),
      },
      {
        what: 'GB after a year, watched rows, 1,000 a minute, 72 hours kept',
        atMost: 1,
        actual: (watched ?? Number.NaN) / 1000,
      },
    ],
  };
}
