// The processor as an edge function. INDEX_URL stands for the work: it gets each batch of events.
// Usage: deno run --allow-env --allow-net --allow-read --allow-sys processor.mjs

import { processEvents } from '../processor.mjs';
import { serve } from './serve.mjs';

serve(() =>
  processEvents({
    database: { url: Deno.env.get('DATABASE_URL') },
    name: Deno.env.get('PROCESSOR_NAME') ?? 'job-index',
    maxMs: Number(Deno.env.get('MAX_MS') ?? 25_000),
    async handle(events, signal) {
      const response = await fetch(Deno.env.get('INDEX_URL'), {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify(events),
        signal,
      });
      await response.body?.cancel();
      if (!response.ok) throw new Error(`the index answered ${response.status}`);
    },
  }),
);
