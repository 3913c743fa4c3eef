// Head sinks: the places outside the database that keep the heads of the audit chain (file, webhook, log). `send`
// resolves when the heads are stored for good. After a crash a sink may get the same heads again, which is harmless.

import { open } from 'node:fs/promises';
import os from 'node:os';

import { headLine } from './chain.js';
import { fingerprint } from '../../core/sealed-secret.js';
import type { Head } from './chain.js';
import type { ResolvedAuditOptions } from './options.js';
import type { Emit } from '../../telemetry/events.js';

export type HeadSink = {
  /** The name that operators see; it contains no secrets. */
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

/** Appends heads to the file and flushes them to disk. */
export function fileSink(file: string): HeadSink {
  return {
    name: `file ${os.hostname()}:${file}`,
    async send(heads) {
      const handle = await open(file, 'a+');
      try {
        const { size } = await handle.stat();
        const { buffer } = await handle.read(Buffer.alloc(1), 0, 1, Math.max(size - 1, 0));
        // a line that a crash cut short stays on its own line
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
  const { origin } = new URL(address);
  return {
    // the path may contain a secret; the fingerprint distinguishes two addresses of one host
    name: `webhook ${origin} (${fingerprint(address)})`,
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
