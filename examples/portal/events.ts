// The events of a shop that customers can receive. Descriptions and examples are shown in the portal.

import { defineEvents } from 'waybill/producer';
import { z } from 'zod';

export const events = defineEvents({
  'customer.created': z
    .object({ customerId: z.string(), email: z.email() })
    .describe('A customer has registered.'),
  'order.paid': z
    .object({ orderId: z.string(), amount: z.number(), currency: z.string() })
    .describe('The payment of an order has arrived.')
    .meta({ examples: [{ orderId: 'A-1042', amount: 129.5, currency: 'EUR' }] }),
  'order.shipped': z
    .object({ orderId: z.string(), carrier: z.enum(['dhl', 'ups']), shippedAt: z.date() })
    .describe('An order has left the warehouse.'),
  'stock.counted': z.object({ shelf: z.string(), pieces: z.int() }),
});
