// The events of an application, each with the schema of its payload. `user.registered` has two versions: consumers that
// know the first one still get it.

import { defineEvents } from 'waybill/producer';
import { z } from 'zod';

export const events = defineEvents({
  'user.registered': z.object({
    userId: z.number(),
    email: z.email(),
  }),
  'user.registered.v2': z.object({
    userId: z.number(),
    contact: z.object({ email: z.email(), phone: z.string().optional() }),
    registeredAt: z.date(),
  }),
});
