// Results of a job that retried dead letters: how many were delivered, died again or are unfinished. They are asked for
// with the live interval of the page while some are unfinished, for at most five minutes after the end of the job.

import { useState } from 'preact/hooks';

import type { Job, Results } from './answers.js';
import { useLive } from '../../live.js';
import { plural, count } from '../../shown.js';

const followedMs = 300_000;

export function JobResults({ job }: { job: Job }) {
  const [isDone, setIsDone] = useState(false);
  const isOld = job.endedAt !== null && Date.now() - Date.parse(job.endedAt) > followedMs;
  const { data } = useLive<Results>(`dead-letters/jobs/${job.id}/results`, {
    paused: isDone || isOld,
  });
  if (data === undefined || data.followed === 0) return null;
  if (data.unfinished + data.retrying === 0 && !isDone) setIsDone(true);
  const isPart = data.followed < job.done;
  return (
    <span class="job-outcome" role="status">
      Retried {count(job.done)}
      {isPart ? `; of ${count(data.followed)} that are followed: ` : ', of which: '}
      <b>{wordsOf(data)}</b>
    </span>
  );
}

function wordsOf({ followed, delivered, dead, retrying, unfinished }: Results): string {
  const gone = followed - delivered - dead - retrying - unfinished;
  return [
    `${count(delivered)} delivered`,
    `${count(dead)} dead again`,
    ...(retrying > 0 ? [`${plural(retrying, 'failed and is', 'failed and are')} tried again`] : []),
    `${count(unfinished)} unfinished`,
    ...(gone > 0 ? [`${count(gone)} discarded`] : []),
  ].join(', ');
}
