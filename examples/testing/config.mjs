// The configuration is made by a function, so that tests can give its handlers their own client and mailer.

import { defineConfig, handler, reject, webhook } from 'waybill';

export function configFor({ db, sendMail }) {
  return defineConfig({
    destinations: {
      welcome: handler(
        async (message) => {
          const { userId, email } = message.payload;
          if (!email.includes('@')) return reject({ code: 'bad_address' });
          await sendMail(email, message.topic);
          await db.query('UPDATE users SET mails = mails + 1 WHERE id = $1', [userId]);
        },
        { retry: { delaysMs: [60_000, 3_600_000] } },
      ),
      crm: webhook({ url: 'https://crm.example.com/hooks' }),
    },
    routes: [
      { topic: 'user.*', to: 'welcome' },
      { topic: 'user.registered', to: 'crm' },
    ],
  });
}
