// A change of many dead letters: first the plan with its count and a sample, then a confirmation that has to be
// typed, then a job with its progress and a way to stop it. The job goes on when the dialog is closed.

import { useEffect, useState } from 'preact/hooks';

import type { Job, Plan } from '../answers.js';
import { ApiError, post, remove } from '../api.js';
import { useLive } from '../live.js';
import { Action } from '../parts/action.js';
import { Dialog } from '../parts/dialog.js';
import { Problem } from '../parts/problem.js';
import { Time } from '../parts/time.js';
import { NothingToDo, TypedConfirmation } from '../parts/typed-confirmation.js';
import { linkTo } from '../route.js';
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
      const { count: planned, deadBefore } = plan ?? { count: 0, deadBefore: '' };
      setStarted(await post<Job>('dead-letters/jobs', { ...body, count: planned, deadBefore }));
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
      {isElsewhere(error) ? (
        <p class="notice">
          This job runs in another server process, or ended with one. What it did is in the{' '}
          <a href={linkTo('audit')}>audit</a>; the same plan again does the rest.
        </p>
      ) : (
        <Problem error={error} again={refresh} />
      )}
      {data && <JobLine job={data} changed={refresh} />}
      <footer>
        <button type="button" onClick={close}>
          Close
        </button>
      </footer>
    </>
  );
}

/** Jobs are known to the process that does them; behind one address there may be several. */
function isElsewhere(error: Error | undefined): boolean {
  return error instanceof ApiError && error.status === 404;
}

function JobLine({ job, changed }: { job: Job; changed: () => void }) {
  const words = {
    running: 'running',
    done: 'done',
    cancelled: 'stopped: what was done stays done',
    failed: `failed: ${job.error ?? ''}`,
  };
  return (
    <div class="job" data-state={job.state}>
      <b>{job.action}</b>
      <progress
        max={Math.max(job.planned, 1)}
        value={job.state === 'done' ? Math.max(job.planned, 1) : job.done}
      />
      <span>
        {count(job.done)} of {count(job.planned)}, {words[job.state]}
      </span>
      {job.state === 'running' && (
        <Action
          label="Stop"
          act={async () => {
            await remove(`dead-letters/jobs/${job.id}`);
            changed();
          }}
        />
      )}
    </div>
  );
}

/** Jobs that run, whoever started them. */
export function RunningJobs() {
  const { data, refresh } = useLive<{ jobs: Job[] }>('dead-letters/jobs', { everyMs: 3000 });
  const running = data?.jobs.filter(({ state }) => state === 'running') ?? [];
  if (running.length === 0) return null;
  return (
    <section class="panel" aria-label="Jobs">
      {running.map((job) => (
        <JobLine key={job.id} job={job} changed={refresh} />
      ))}
    </section>
  );
}
