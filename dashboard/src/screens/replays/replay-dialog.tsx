// Dialog for a new replay: the messages and the destination, the plan, a typed confirmation, then the progress. The
// replay continues when the dialog is closed.

import { useState } from 'preact/hooks';

import type { Destination } from '../../answers.js';
import { post } from '../../api.js';
import { useLive } from '../../live.js';
import { Dialog } from '../../parts/dialog.js';
import { Problem } from '../../parts/problem.js';
import { Time } from '../../parts/time.js';
import { NothingToDo, TypedConfirmation } from '../../parts/typed-confirmation.js';
import { linkTo } from '../../route.js';
import { plural, roughly } from '../../shown.js';
import type { Replay, ReplayPlan } from './answers.js';
import { ReplayForm } from './replay-form.js';
import type { Asked } from './replay-form.js';
import { ReplayLine } from './replay-line.js';

type ReplayDialogProps = {
  asked: Partial<Asked>;
  /** The labels of filters of the list that a replay does not have. */
  leftOut?: readonly string[];
  close: () => void;
};

export function ReplayDialog({ asked, leftOut = [], close }: ReplayDialogProps) {
  const [form, setForm] = useState<Asked>({ destination: '', perSecond: 100, ...asked });
  const [plan, setPlan] = useState<ReplayPlan>();
  const [error, setError] = useState<Error>();
  const [started, setStarted] = useState<Replay>();
  const { data } = useLive<{ destinations: Destination[] }>('destinations', { paused: true });
  const guarded = async (act: () => Promise<void>): Promise<void> => {
    setError(undefined);
    try {
      await act();
    } catch (failure) {
      setError(failure as Error);
    }
  };
  const { perSecond, ...filter } = form;
  const makePlan = (): Promise<void> =>
    guarded(async () => setPlan(await post<ReplayPlan>('replays/plan', filter)));
  const start = (): Promise<void> =>
    guarded(async () =>
      setStarted(await post<Replay>('replays', { ...filter, perSecond, until: plan?.until ?? '' })),
    );
  return (
    <Dialog title="Replay" close={close}>
      <Problem error={error} />
      {leftOut.length > 0 && started === undefined && (
        <p class="notice">
          A replay has no filter for {leftOut.join(', ')}: it also sends messages that your list
          leaves out.
        </p>
      )}
      {started !== undefined ? (
        <Progress id={started.id} planned={plan?.messages} close={close} />
      ) : plan === undefined ? (
        <ReplayForm
          form={form}
          destinations={data?.destinations.filter(({ configured }) => configured) ?? []}
          change={setForm}
          submit={makePlan}
          close={close}
        />
      ) : (
        <Plan
          plan={plan}
          form={form}
          start={start}
          back={() => {
            setError(undefined);
            setPlan(undefined);
          }}
        />
      )}
    </Dialog>
  );
}

type PlanProps = { plan: ReplayPlan; form: Asked; start: () => Promise<void>; back: () => void };

function Plan({ plan, form, start, back }: PlanProps) {
  const { destination, perSecond } = form;
  const missing = <Missing plan={plan} />;
  if (plan.messages === 0)
    return (
      <>
        {missing}
        <NothingToDo close={back} button="Back">
          {`No message matches: a replay sends messages that ${destination} has had, or that its routes match now.`}
        </NothingToDo>
      </>
    );
  return (
    <TypedConfirmation
      words={[destination]}
      button="Replay them"
      start={start}
      close={back}
      back="Back"
    >
      {missing}
      <p>
        <b class="plan-count">
          {!plan.isExact && 'About '}
          {plural(plan.messages, 'message')}
        </b>{' '}
        will be sent to <b>{destination}</b> again, with the same ids, which takes{' '}
        {roughly(plan.messages / perSecond)} at {plural(perSecond, 'message')} a second. Messages
        that wait there already are passed over.
      </p>
      <ul class="sample" aria-label="The first of them">
        {plan.sample.map((message) => (
          <li key={message.messageId}>
            <span>{message.topic}</span>
            <span class="muted">{message.key ?? message.tenantId ?? ''}</span>
            <span>{message.status}</span>
            <Time at={message.createdAt} />
          </li>
        ))}
      </ul>
    </TypedConfirmation>
  );
}

/** Reports messages that retention has removed and that can therefore not be replayed. */
function Missing({ plan: { keptSince, expired } }: { plan: ReplayPlan }) {
  return (
    <>
      {keptSince !== null && (
        <p class="notice">
          Retention has removed messages from before <Time at={keptSince} />: they cannot be
          replayed.
        </p>
      )}
      {expired > 0 && (
        <p class="notice">
          The payload of {plural(expired, 'message')} has expired: retention has removed it.
        </p>
      )}
    </>
  );
}

type ProgressProps = { id: string; planned: number | undefined; close: () => void };

function Progress({ id, planned, close }: ProgressProps) {
  const { data, error, refresh } = useLive<Replay>(`replays/${id}`, {
    everyMs: 1000,
    always: true,
  });
  return (
    <>
      <Problem error={error} again={refresh} />
      {data && <ReplayLine replay={data} planned={planned} changed={refresh} />}
      <p class="muted">
        It continues when this is closed: see <a href={linkTo('replays')}>Replays</a>.
      </p>
      <footer>
        <button type="button" autofocus onClick={close}>
          Close
        </button>
      </footer>
    </>
  );
}
