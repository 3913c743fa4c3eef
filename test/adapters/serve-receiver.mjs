// Serves a Fetch handler with the runtime's own server, Bun or Deno: serve-receiver.mjs MODULE PORT.

const { POST } = await import(process.argv[2]);
const place = { port: Number(process.argv[3]), hostname: '127.0.0.1' };
if (globalThis.Bun) globalThis.Bun.serve({ ...place, fetch: POST });
else globalThis.Deno.serve(place, POST);
console.log('serving');
