// Where the heads of the audit's chain are kept outside the database. A sink answers when it has them for good;
// it may be given the same ones again after a crash, which changes nothing.

import { open } from 'node:fs/promises';
import os from 'node:os';

import { headLine } from '../model/seal-chain.js';
import type { Head } from '../model/seal-chain.js';
import type { ResolvedAuditOptions } from '../model/audit-options.js';
import type { Emit } from '../telemetry/events.js';

export type HeadSink = {
  /** As operators see it: without secrets. */
  readonly name: string;
  send(heads: readonly Head[]): Promise<void>;
};

const timeoutMs = 10_000;

export function headSinks({ heads }: ResolvedAuditOptions, emit: Emit): HeadSink[] {
  const { file, webhook, headers = {}, log } = heads;
  return [
    ...(file === undefined ? [] : [fileSink(file)]),
    ...(webhook === undefined ? [] : [webhookSink(webhook, headers)]),
    ...(log ? [logSink(emit)] : []),
  ];
}

/** Appended and flushed to the disk. */
export function fileSink(file: string): HeadSink {
  return {
    name: `file ${os.hostname()}:${file}`,
    async send(heads) {
      const handle = await open(file, 'a+');
      try {
        const { size } = await handle.stat();
        const { buffer } = await handle.read(Buffer.alloc(1), 0, 1, Math.max(size - 1, 0));
        // what a crash has cut short stays a line of its own
        const start = size > 0 && buffer.toString() !== '\n' ? '\n' : '';
        await handle.appendFile(`${start}${heads.map(headLine).join('\n')}\n`);
        await handle.sync();
      } finally {
        await handle.close();
      }
    },
  };
}

function webhookSink(address: string, headers: Readonly<Record<string, string>>): HeadSink {
  const { origin, pathname } = new URL(address);
  return {
    name: `webhook ${origin}${pathname}`,
    async send(heads) {
      const answer = await fetch(address, {
        method: 'POST',
        headers: { 'content-type': 'application/json', ...headers },
        body: JSON.stringify({ heads }),
        redirect: 'error',
        signal: AbortSignal.timeout(timeoutMs),
      });
      await answer.body?.cancel();
      if (!answer.ok) throw new Error(`it answered ${answer.status}`);
    },
  };
}

function logSink(emit: Emit): HeadSink {
  return {
    name: 'log',
    send(heads) {
      for (const head of heads) emit({ name: 'audit_sealed', ...head });
      return Promise.resolve();
    },
  };
}
