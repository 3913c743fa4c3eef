// Who is logged in, for everything below.

import { createContext } from 'preact';

import type { Session } from './answers.js';

export const SessionContext = createContext<Session>({
  name: '',
  scope: 'read',
  tenantId: null,
  authentication: 'tokens',
});
