// A change of many dead letters: first the plan with its count and a sample, then a confirmation that has to be
// typed, then a job with its progress and a way to stop it. The job goes on when the dialog is closed, and any
// server tells how far it is; one that was interrupted can be taken up again.

import type { ComponentChildren } from 'preact';
import { useEffect, useState } from 'preact/hooks';

import type { Job, Plan } from '../answers.js';
import { post, remove } from '../api.js';
import { useLive } from '../live.js';
import { Action } from '../parts/action.js';
import { Dialog } from '../parts/dialog.js';
import { Problem } from '../parts/problem.js';
import { Subject } from '../parts/subject.js';
import { Time } from '../parts/time.js';
import { NothingToDo, TypedConfirmation } from '../parts/typed-confirmation.js';
import { count, plural } from '../shown.js';

export type Change = {
  action: 'retry' | 'discard';
  /** As it stands in the question: `all that match`. */
  what: string;
  filter: Record<string, string | string[]>;
};

export function JobDialog({ change, close }: { change: Change; close: () => void }) {
  const [plan, setPlan] = useState<Plan>();
  const [error, setError] = useState<Error>();
  const [started, setStarted] = useState<Job>();
  const body = { action: change.action, ...change.filter };
  const makePlan = async (): Promise<void> => {
    setError(undefined);
    try {
      setPlan(await post<Plan>('dead-letters/plan', body));
    } catch (failure) {
      setError(failure as Error);
    }
  };
  useEffect(() => void makePlan(), []);
  const start = async (): Promise<void> => {
    setError(undefined);
    try {
      const deadBefore = plan?.deadBefore ?? '';
      setStarted(await post<Job>('dead-letters/jobs', { ...body, deadBefore }));
    } catch (failure) {
      setError(failure as Error);
    }
  };
  const verb = change.action === 'retry' ? 'Retry' : 'Discard';
  return (
    <Dialog title={`${verb} ${change.what}`} close={close}>
      <Problem error={error} again={() => void (plan === undefined ? makePlan() : start())} />
      {started !== undefined ? (
        <JobProgress id={started.id} close={close} />
      ) : plan === undefined ? (
        <p class="muted">Counting…</p>
      ) : (
        <PlanQuestion plan={plan} change={change} start={start} close={close} />
      )}
    </Dialog>
  );
}

type QuestionProps = {
  plan: Plan;
  change: Change;
  start: () => Promise<void>;
  close: () => void;
};

function PlanQuestion({ plan, change, start, close }: QuestionProps) {
  if (plan.count === 0) return <NothingToDo close={close}>No dead letter matches.</NothingToDo>;
  const discards = change.action === 'discard';
  return (
    <TypedConfirmation
      words={[String(plan.count), change.action]}
      button={discards ? 'Discard them' : 'Retry them'}
      danger={discards}
      start={start}
      close={close}
    >
      <p>
        <b class="plan-count">
          {plan.atLeast && 'More than '}
          {plural(plan.count, 'dead letter')}
        </b>{' '}
        {discards ? 'will be given up for good. The record of them stays.' : 'will be tried anew.'}{' '}
        What dies from now on is left alone.
      </p>
      <ul class="sample" aria-label="Some of them">
        {plan.sample.map((letter) => (
          <li key={`${letter.messageId} ${letter.destination}`}>
            <span>{letter.topic ?? letter.messageId}</span>
            <span class="muted">{letter.destination}</span>
            <code>{letter.errorCode ?? 'no code'}</code>
            <Time at={letter.deadAt} />
          </li>
        ))}
      </ul>
    </TypedConfirmation>
  );
}

function JobProgress({ id, close }: { id: string; close: () => void }) {
  const { data, error, refresh } = useLive<Job>(`dead-letters/jobs/${id}`, { everyMs: 500 });
  return (
    <>
      <Problem error={error} again={refresh} />
      {data && <JobLine job={data} changed={refresh} />}
      <footer>
        <button type="button" onClick={close}>
          Close
        </button>
      </footer>
    </>
  );
}

/** In a list of several, `about` says which one it is. */
function JobLine({
  job,
  changed,
  about,
}: {
  job: Job;
  changed: () => void;
  about?: ComponentChildren;
}) {
  const words = {
    running: 'running',
    interrupted: 'interrupted: its server gives no sign of life',
    done: 'done',
    cancelled: 'stopped: what was done stays done',
    failed: `failed: ${job.error ?? ''}`,
  };
  const send = async (act: Promise<unknown>): Promise<void> => {
    try {
      await act;
    } finally {
      // also if somebody was faster
      changed();
    }
  };
  return (
    <div class="job" data-state={job.state}>
      <b>{job.action}</b>
      {about}
      <progress
        max={Math.max(job.planned, 1)}
        value={job.state === 'done' ? Math.max(job.planned, 1) : job.done}
      />
      <span>
        {count(job.done)} of {count(job.planned)}, {words[job.state]}
      </span>
      {job.state === 'interrupted' && (
        <Action
          label="Go on"
          icon="play"
          act={() => send(post(`dead-letters/jobs/${job.id}/resume`))}
        />
      )}
      {isUnfinished(job) && (
        <Action label="Stop" act={() => send(remove(`dead-letters/jobs/${job.id}`))} />
      )}
    </div>
  );
}

function isUnfinished({ state }: Job): boolean {
  return state === 'running' || state === 'interrupted';
}

/** Jobs that have not ended, whoever started them and wherever they run. */
export function UnfinishedJobs() {
  const { data, refresh } = useLive<{ jobs: Job[] }>('dead-letters/jobs', { everyMs: 3000 });
  const unfinished = data?.jobs.filter(isUnfinished) ?? [];
  if (unfinished.length === 0) return null;
  return (
    <section class="panel" aria-label="Jobs">
      {unfinished.map((job) => (
        <JobLine key={job.id} job={job} changed={refresh} about={<JobSubject job={job} />} />
      ))}
    </section>
  );
}

/** Whose job it is and over which letters; of those that were chosen one by one, how many. */
function JobSubject({ job }: { job: Job }) {
  const { ids, ...narrowing } = job.filter;
  return (
    <>
      <Subject subject={ids ? { ...narrowing, letters: ids.length } : narrowing} />
      <span class="muted">by {job.actor}</span>
    </>
  );
}
