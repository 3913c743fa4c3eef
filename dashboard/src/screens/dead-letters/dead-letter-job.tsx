// Dialog for changing many dead letters: the plan with its count and a sample, a typed confirmation, then the job with
// its progress and a button to stop it. The job continues when the dialog is closed.

import type { ComponentChildren } from 'preact';
import { useEffect, useState } from 'preact/hooks';

import type { Job, Plan } from './answers.js';
import { post, remove } from '../../api.js';
import { useLive } from '../../live.js';
import { Action } from '../../parts/action.js';
import { Dialog } from '../../parts/dialog.js';
import { Problem } from '../../parts/problem.js';
import { Subject } from '../../parts/subject.js';
import { Time } from '../../parts/time.js';
import { linkTo } from '../../route.js';
import { NothingToDo, TypedConfirmation } from '../../parts/typed-confirmation.js';
import { count, plural } from '../../shown.js';
import { codeOf } from './causes.js';
import { useDismissed } from './dismissed-jobs.js';
import { JobResults } from './job-results.js';

export type Change = {
  action: 'retry' | 'discard';
  /** The letters as the question names them: `all that match`. */
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
        error === undefined && <p class="muted">Counting…</p>
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
      words={[count(plan.count), change.action]}
      button={discards ? 'Discard them' : 'Retry them'}
      danger={discards}
      start={start}
      close={close}
    >
      <p>
        <b class="plan-count">
          {plan.atLeast && 'At least '}
          {plural(plan.count, 'dead letter')}
        </b>{' '}
        {discards
          ? 'will be discarded. You can undo it until retention removes the messages.'
          : 'will be retried.'}{' '}
        Letters that die from now on are not changed.
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
  // an undo is another job, which takes the place of the first one
  const [shown, setShown] = useState(id);
  const { data, error, refresh } = useLive<Job>(`dead-letters/jobs/${shown}`, {
    everyMs: 500,
    always: true,
  });
  return (
    <>
      <Problem error={error} again={refresh} />
      {data && <JobLine job={data} changed={refresh} undone={(job) => setShown(job.id)} />}
      <footer>
        <button type="button" onClick={close}>
          Close
        </button>
      </footer>
    </>
  );
}

/**
 * The progress of a job, whichever server runs it. An interrupted job can be resumed. A job that has ended links to what
 * it changed and says what became of retried letters; a discard can be undone. `about` identifies the job in a list of
 * several; `undone` is called with the job that undoes this one. With `dismiss`, the result of an ended job can be dismissed.
 */
function JobLine({
  job,
  changed,
  undone = changed,
  about,
  dismiss,
}: {
  job: Job;
  changed: () => void;
  undone?: (job: Job) => void;
  about?: ComponentChildren;
  dismiss?: () => void;
}) {
  const words = {
    running: 'running',
    interrupted: 'interrupted: no heartbeat from its server for 30 s',
    done: 'done',
    cancelled: 'stopped: changes already made are kept',
    failed: `failed: ${job.error ?? ''}`,
  };
  const send = async (act: Promise<unknown>): Promise<void> => {
    try {
      await act;
    } finally {
      // also if another user was faster
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
      <span class="muted">
        {job.endedAt === null && 'since '}
        <Time at={job.endedAt ?? job.startedAt} />
      </span>
      {job.state === 'interrupted' && (
        <Action
          label="Resume"
          icon="play"
          act={() => send(post(`dead-letters/jobs/${job.id}/resume`))}
        />
      )}
      {isUnfinished(job) ? (
        <Action label="Stop" act={() => send(remove(`dead-letters/jobs/${job.id}`))} />
      ) : (
        <span class="job-result">
          {job.action === 'retry' && job.done > 0 && <JobResults job={job} />}
          {job.canUndo && (
            <Action
              label="Undo"
              icon="replay"
              act={async () => undone(await post<Job>(`dead-letters/jobs/${job.id}/undo`))}
            />
          )}
          {job.done > 0 && <ChangedLink job={job} />}
          <a class="button small" href={auditOf(job)}>
            Show audit
          </a>
        </span>
      )}
      {dismiss && !isUnfinished(job) && (
        <button type="button" class="small dismiss" onClick={dismiss}>
          Dismiss
        </button>
      )}
    </div>
  );
}

/**
 * Links to what a job has changed, as far as filters of the list can say it: its letters had failed before the plan was
 * made. Other messages can match too, so the link says what it shows.
 */
function ChangedLink({ job: { action, filter, deadBefore } }: { job: Job }) {
  const { ids = [], causes = [], topic, tenantId } = filter;
  const [only] = ids;
  const destination = destinationOf(filter);
  const codes = new Set(causes.map(codeOf));
  const errorCode = filter.errorCode ?? (codes.size === 1 ? [...codes][0] : undefined);
  const [words, href] =
    ids.length === 1 && only !== undefined
      ? ['Show message', linkTo(`messages/${only}`)]
      : action === 'restore'
        ? ['Show dead letters', linkTo('dead-letters', { destination })]
        : [
            wordsOf(action, errorCode),
            linkTo('messages', {
              destination,
              topic,
              tenantId,
              errorCode,
              ...(action === 'discard' ? { status: 'discarded' } : { failedTo: deadBefore }),
            }),
          ];
  return (
    <a class="button small" href={href}>
      {words}
    </a>
  );
}

/** The only destination of a job. */
function destinationOf({ destination, destinations = [] }: Job['filter']): string | undefined {
  return destination ?? (new Set(destinations).size === 1 ? destinations[0] : undefined);
}

/** Links to the audit of what a job did. */
function auditOf({ action, actor, filter, startedAt, endedAt }: Job): string {
  return linkTo('audit', {
    action: `${action}_dead_letters`,
    actor,
    destination: destinationOf(filter),
    from: startedAt,
    // the filter is exclusive, and a batch can end shortly after its job was stopped
    to: endedAt && new Date(Date.parse(endedAt) + 1000).toISOString(),
  });
}

function wordsOf(action: Job['action'], errorCode: string | undefined): string {
  const messages = action === 'discard' ? 'discarded messages' : 'messages';
  if (errorCode !== undefined) return `Show ${messages} with this code`;
  return action === 'discard' ? `Show ${messages}` : `Show ${messages} that had failed`;
}

function isUnfinished({ state }: Job): boolean {
  return state === 'running' || state === 'interrupted';
}

const recentMs = 3_600_000;
const mostRecent = 3;

/** Jobs that have not ended, of all users and servers, and the last ones that ended within an hour. */
export function JobsPanel() {
  const { data, refresh } = useLive<{ jobs: Job[] }>('dead-letters/jobs', { everyMs: 3000 });
  const jobs = data?.jobs ?? [];
  const recent = jobs.filter(
    ({ endedAt }) => endedAt !== null && Date.now() - Date.parse(endedAt) < recentMs,
  );
  const { dismissed, dismiss } = useDismissed();
  const results = recent.slice(0, mostRecent).filter(({ id }) => !dismissed.has(id));
  const shown = [...jobs.filter(isUnfinished), ...results];
  if (shown.length === 0) return null;
  return (
    <section class="panel jobs" aria-label="Jobs">
      {shown.map((job) => (
        <JobLine
          key={job.id}
          job={job}
          changed={refresh}
          about={<JobSubject job={job} />}
          dismiss={() => dismiss(job.id)}
        />
      ))}
    </section>
  );
}

/** The user of a job and its filter; for letters that were chosen one by one, their number. */
function JobSubject({ job }: { job: Job }) {
  const { ids, destinations: _, ...narrowing } = job.filter;
  return (
    <>
      <Subject subject={ids ? { ...narrowing, letters: ids.length } : narrowing} />
      <span class="muted">by {job.actor}</span>
    </>
  );
}
