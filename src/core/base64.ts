// Strict base64: Node's decoder skips invalid characters, so a secret with a typing error would become another secret.

import { Buffer } from 'node:buffer';

/** The bytes, or null if the text is not base64 with its padding. */
export function strictBase64(text: string): Buffer | null {
  const bytes = Buffer.from(text, 'base64');
  return bytes.toString('base64') === text ? bytes : null;
}
