// Context with the logged-in user.

import { createContext } from 'preact';

import type { Session } from './answers.js';

export const SessionContext = createContext<Session>({
  name: '',
  scope: 'read',
  tenantId: null,
  forEndpoints: false,
  authentication: 'tokens',
});
