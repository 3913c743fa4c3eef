// Logins to NATS: a token, a user with a password, an nkey, or a credentials file. At most one of them may be given,
// and none is ever shown.

import type { Authenticator, ConnectionOptions } from '@nats-io/transport-node';

import { optional, refuse, text } from '../../core/options.js';
import { secret, secretLike } from '../credentials.js';

export const loginKinds = {
  token: optional(secret),
  user: optional(text({ meaning: 'text that is not empty' })),
  password: optional(secret),
  nkey: optional(secretLike(/^SU[A-Z2-7]{56}$/, 'the seed of a user, which begins with SU')),
  credentials: optional(
    secretLike(
      /^-+BEGIN NATS USER JWT-+\n\S+\n-+END[^]*^-+BEGIN USER NKEY SEED-+\n\S+\n-+END/m,
      'the text of a credentials file, with the token and the seed of a user',
    ),
  ),
};

type Logins = Record<'token' | 'user' | 'password' | 'nkey' | 'credentials', string | undefined>;
type Authenticators = {
  credsAuthenticator: (credentials: Uint8Array) => Authenticator;
  nkeyAuthenticator: (seed: Uint8Array) => Authenticator;
};

/** The login as options of the connection; refuses more than one. */
export function oneLogin(logins: Logins): (library: Authenticators) => Partial<ConnectionOptions> {
  const { token, user, password, nkey, credentials } = logins;
  const chosen = Object.entries({ token, user, nkey, credentials }).filter(
    ([, value]) => value !== undefined,
  );
  if (chosen[1] !== undefined)
    refuse(`nats.${chosen[1][0]}`, '…', `leave it out, for ${chosen[0]?.[0]} is given`);
  if ((user === undefined) !== (password === undefined))
    refuse('nats.user', user, 'give user and password together, or neither');
  const bytes = new TextEncoder();
  return ({ credsAuthenticator, nkeyAuthenticator }) => {
    if (token !== undefined) return { token };
    if (user !== undefined && password !== undefined) return { user, pass: password };
    if (nkey !== undefined) return { authenticator: nkeyAuthenticator(bytes.encode(nkey)) };
    if (credentials !== undefined)
      return { authenticator: credsAuthenticator(bytes.encode(credentials)) };
    return {};
  };
}
