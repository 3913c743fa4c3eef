// A receiver of signed webhooks as a Cloudflare Worker, with the flag nodejs_compat. The secret is a binding.

import { createReceiver } from 'waybill/receiver';

let receive;

export default {
  fetch(request, env) {
    receive ??= createReceiver({ secrets: env.WEBHOOK_SECRET }).toFetch((event) => {
      console.log(event.topic, event.id, event.body);
    });
    return receive(request);
  },
};
