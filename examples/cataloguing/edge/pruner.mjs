// The pruner as an edge function.
// Usage: deno run --allow-env --allow-net --allow-read --allow-sys pruner.mjs

import { pruneEvents } from '../pruner.mjs';
import { serve } from './serve.mjs';

serve(() =>
  pruneEvents({
    url: Deno.env.get('DATABASE_URL'),
    maxMs: Number(Deno.env.get('MAX_MS') ?? 25_000),
  }),
);
