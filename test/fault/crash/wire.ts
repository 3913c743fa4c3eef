// The part of PostgreSQL's wire protocol that shows which statement passes, with which parameters, and where its
// response ends.

export type Frame = { type: string; bytes: Buffer };

const startup = 'startup';

/** Splits a stream of bytes into frames. The first frame of a client has no type byte. */
export class FrameReader {
  #rest: Buffer = Buffer.alloc(0);
  #untyped: boolean;

  constructor(side: 'client' | 'server') {
    this.#untyped = side === 'client';
  }

  read(chunk: Buffer): Frame[] {
    let bytes = this.#rest.length === 0 ? chunk : Buffer.concat([this.#rest, chunk]);
    const frames: Frame[] = [];
    for (;;) {
      const typeBytes = this.#untyped ? 0 : 1;
      if (bytes.length < typeBytes + 4) break;
      const length = typeBytes + bytes.readInt32BE(typeBytes);
      if (bytes.length < length) break;
      const type = this.#untyped ? startup : String.fromCharCode(bytes[0] ?? 0);
      frames.push({ type, bytes: bytes.subarray(0, length) });
      this.#untyped = false;
      bytes = bytes.subarray(length);
    }
    this.#rest = bytes;
    return frames;
  }
}

/** A request of a client that gets one response: a statement with its parameters. */
export type Request = {
  sql: string;
  parameters: (string | null)[];
  bytes: Buffer;
  /** False for what the server does not answer: the termination message. */
  answered: boolean;
};

/** Assembles the frames of one client into requests. */
export class RequestReader {
  readonly #frames = new FrameReader('client');
  /** Named statements are parsed once and bound by name from then on. */
  readonly #statements = new Map<string, string>();
  #gathered: Frame[] = [];
  #sql = '';
  #parameters: (string | null)[] = [];

  read(chunk: Buffer): Request[] {
    const requests: Request[] = [];
    for (const frame of this.#frames.read(chunk)) {
      this.#gathered.push(frame);
      if (this.#ends(frame)) requests.push(this.#finish(frame));
    }
    return requests;
  }

  /** Records the frame; true if it completes a request. */
  #ends({ type, bytes }: Frame): boolean {
    if (type === 'Q') this.#sql = textAt(bytes, 5).text;
    if (type === 'P') {
      const name = textAt(bytes, 5);
      this.#sql = textAt(bytes, name.end).text;
      this.#statements.set(name.text, this.#sql);
    }
    if (type === 'B') {
      const statement = textAt(bytes, textAt(bytes, 5).end);
      this.#sql = this.#statements.get(statement.text) ?? '';
      this.#parameters = parametersAt(bytes, statement.end);
    }
    return !'PBDECdc'.includes(type);
  }

  #finish(last: Frame): Request {
    const request = {
      sql: this.#sql,
      parameters: this.#parameters,
      bytes: Buffer.concat(this.#gathered.map((frame) => frame.bytes)),
      answered: last.type !== 'X',
    };
    this.#gathered = [];
    this.#sql = '';
    this.#parameters = [];
    return request;
  }
}

function textAt(bytes: Buffer, start: number): { text: string; end: number } {
  const end = bytes.indexOf(0, start);
  return { text: bytes.toString('utf8', start, end), end: end + 1 };
}

function parametersAt(bytes: Buffer, start: number): (string | null)[] {
  let at = start + 2 + 2 * bytes.readInt16BE(start);
  const count = bytes.readInt16BE(at);
  at += 2;
  const values: (string | null)[] = [];
  for (let index = 0; index < count; index += 1) {
    const length = bytes.readInt32BE(at);
    at += 4;
    values.push(length < 0 ? null : bytes.toString('utf8', at, at + length));
    at += Math.max(length, 0);
  }
  return values;
}
