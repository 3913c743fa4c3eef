// Screen of replays: what was replayed, by which user, and the progress of each.

import { useState } from 'preact/hooks';

import type { Replay } from './answers.js';
import { useLive } from '../../live.js';
import { Action } from '../../parts/action.js';
import { Problem } from '../../parts/problem.js';
import { Subject } from '../../parts/subject.js';
import { Table } from '../../parts/table.js';
import { Time } from '../../parts/time.js';
import { count } from '../../shown.js';
import { ReplayDialog } from './replay-dialog.js';
import { passedOverWords, ReplayActions, ReplayBar, replayWords } from './replay-line.js';

export function ReplaysScreen() {
  const [open, setOpen] = useState(false);
  const { data, error, loading, refresh } = useLive<{ replays: Replay[] }>('replays', {
    everyMs: 2000,
  });
  return (
    <>
      <header class="screen-head">
        <h1>Replays</h1>
        <span class="head-actions">
          <Action label="New replay…" icon="replay" act={() => setOpen(true)} />
        </span>
      </header>
      <Problem error={error} again={refresh} />
      <Table
        label="Replays"
        rows={data?.replays}
        loading={loading}
        rowKey={(replay) => replay.id}
        empty="Nothing was replayed yet."
        columns={[
          {
            head: 'Destination',
            width: 'name',
            inCard: 'title',
            cell: (replay) => (
              <span title={replay.destination}>
                {replay.destination} <small class="why muted">replay {replay.id}</small>
              </span>
            ),
          },
          { head: 'Filter', cell: (replay) => <Subject subject={replay.filter} /> },
          {
            head: 'State',
            width: 'name',
            cell: (replay) => (
              <span class="job in-table" title={replayWords(replay)}>
                <ReplayBar replay={replay} />
                <small>{replayWords(replay)}</small>
              </span>
            ),
          },
          {
            head: 'Replayed',
            numeric: true,
            width: 'number',
            cell: ({ replayed }) => count(replayed),
          },
          {
            head: 'Passed over',
            numeric: true,
            width: 'number',
            cell: (replay) => (
              <span title={passedOverWords(replay)}>
                {count(replay.waiting + replay.processing)}
              </span>
            ),
          },
          {
            head: 'Per second',
            numeric: true,
            width: 'number',
            cell: ({ perSecond }) => count(perSecond),
          },
          {
            head: 'Began',
            width: 'medium',
            cell: ({ startedAt, actor }) => (
              <span title={actor}>
                <Time at={startedAt} />
                <small class="why muted">{actor}</small>
              </span>
            ),
          },
          {
            head: 'Actions',
            width: 'actions-2',
            cell: (replay) => (
              <span class="row-actions">
                <ReplayActions replay={replay} changed={refresh} bare />
              </span>
            ),
          },
        ]}
      />
      <p class="footnote">
        A replay sends messages of the past to one destination again, with the same ids. Cancel ends
        it for good; a stopped replay can be resumed.
      </p>
      {open && (
        <ReplayDialog
          asked={{}}
          close={() => {
            setOpen(false);
            refresh();
          }}
        />
      )}
    </>
  );
}
