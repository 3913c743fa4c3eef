// The question before a message is sent again, which is the same wherever Resend is.

import type { Question } from './dialog.js';

type Sent = { id: string; topic: string | null; to: string };

export function resendQuestion({ id, topic, to }: Sent, act: Question['act']): Question {
  return {
    title: 'Send this message again?',
    text: (
      <>
        <p>
          {topic} <code>{id}</code> to <b>{to}</b>
        </p>
        <p>It is sent whatever its status there. A receiver that has it already gets it twice.</p>
      </>
    ),
    button: 'Send again',
    act,
  };
}
