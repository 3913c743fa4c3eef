import { defineEvents } from 'waybill/producer';
import { z } from 'zod';

export const events = defineEvents({
  'order.created': z
    .object({ orderId: z.number(), item: z.string() })
    .describe('An order was placed.')
    .meta({ examples: [{ orderId: 17, item: 'Tea' }] }),
});
