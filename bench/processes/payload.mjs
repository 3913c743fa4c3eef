// Payloads of an exact size: JSON with a number that identifies the message, and text that does not compress.

const letters = Array.from({ length: 4096 }, (_, index) =>
  ((index * 2_654_435_761) % 4_294_967_296).toString(36),
).join('');

/** @param {number} n @param {number} bytes */
export function payloadOf(n, bytes) {
  const bare = JSON.stringify({ n, text: '' }).length;
  const start = (n * 7) % 4096;
  return { n, text: letters.slice(start, start + Math.max(bytes - bare, 0)) };
}
