// Credentials for a NATS server: an operator that signs accounts, an account with JetStream that signs a user, and that
// user's credentials. Signed here, as the `nsc` tool would.

import { nkeys } from '@nats-io/transport-node';

type KeyPair = ReturnType<typeof nkeys.createUser>;

/** Lines for the server's configuration file, and the text of a credentials file. */
export function makeOperator(): { configuration: string; credentials: string } {
  const operator = nkeys.createOperator();
  const system = nkeys.createAccount();
  const account = nkeys.createAccount();
  const user = nkeys.createUser();
  const unlimited = { subs: -1, data: -1, payload: -1 };
  const limits = { ...unlimited, imports: -1, exports: -1, wildcards: true, conn: -1, leaf: -1 };
  const storage = { mem_storage: -1, disk_storage: -1, streams: -1, consumer: -1 };
  const key = (pair: KeyPair): string => pair.getPublicKey();
  const preload = [
    [key(system), token(operator, system, { type: 'account', limits })],
    [
      key(account),
      token(operator, account, { type: 'account', limits: { ...limits, ...storage } }),
    ],
  ];
  const operatorToken = token(operator, operator, {
    type: 'operator',
    system_account: key(system),
  });
  const userToken = token(account, user, { type: 'user', pub: {}, sub: {}, ...unlimited });
  const seed = new TextDecoder().decode(user.getSeed());
  const block = (name: string, text: string): string =>
    `-----BEGIN ${name}-----\n${text}\n------END ${name}------\n\n`;
  return {
    configuration: `operator: ${operatorToken}
resolver: MEMORY
resolver_preload: { ${preload.map((pair) => pair.join(': ')).join(', ')} }`,
    credentials: block('NATS USER JWT', userToken) + block('USER NKEY SEED', seed),
  };
}

function token(issuer: KeyPair, subject: KeyPair, claims: object): string {
  const part = (value: object): string => Buffer.from(JSON.stringify(value)).toString('base64url');
  const body = {
    jti: subject.getPublicKey(),
    iat: Math.floor(Date.now() / 1000),
    iss: issuer.getPublicKey(),
    sub: subject.getPublicKey(),
    name: 'test',
    nats: { version: 2, ...claims },
  };
  const signed = `${part({ typ: 'JWT', alg: 'ed25519-nkey' })}.${part(body)}`;
  const signature = issuer.sign(new TextEncoder().encode(signed));
  return `${signed}.${Buffer.from(signature).toString('base64url')}`;
}
