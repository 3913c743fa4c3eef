// Progress of a replay, with buttons to stop or resume it. The bar follows the times of the messages, which the
// database records: it is right after a restart of the server, and for replays that run elsewhere.

import type { Replay } from './answers.js';
import { post, remove } from '../../api.js';
import { Action } from '../../parts/action.js';
import { count, plural } from '../../shown.js';

type ReplayLineProps = { replay: Replay; planned?: number | undefined; changed: () => void };

export function replayWords({ state, running, error }: Replay): string {
  if (state !== 'unfinished') return state;
  if (running) return 'running';
  return error === null ? 'stopped' : `stopped: ${error}`;
}

export function ReplayBar({ replay }: { replay: Replay }) {
  return <progress aria-label={`Replay ${replay.id}`} max={1} value={partOf(replay)} />;
}

export function ReplayLine({ replay, planned, changed }: ReplayLineProps) {
  const passedOver = replay.waiting + replay.processing;
  return (
    <div class="job" data-state={replay.state}>
      <b>to {replay.destination}</b>
      <ReplayBar replay={replay} />
      <span>
        {planned === undefined
          ? `${count(replay.replayed)} replayed`
          : `${count(replay.replayed)} of ${count(planned)}`}
        {passedOver > 0 && `, ${count(passedOver)} passed over`}, {replayWords(replay)}
      </span>
      <ReplayActions replay={replay} changed={changed} />
    </div>
  );
}

type ReplayActionsProps = { replay: Replay; changed: () => void; bare?: boolean };

export function ReplayActions({ replay, changed, bare = false }: ReplayActionsProps) {
  if (replay.state !== 'unfinished') return null;
  const send = async (act: Promise<unknown>): Promise<void> => {
    await act;
    changed();
  };
  return (
    <>
      {!replay.running && (
        <Action
          label="Resume"
          icon="play"
          bare={bare}
          act={() => send(post(`replays/${replay.id}/resume`))}
        />
      )}
      <Action
        label={`Cancel${bare ? ` replay ${replay.id}` : ''}`}
        icon="delete"
        bare={bare}
        act={() => send(remove(`replays/${replay.id}`))}
      />
    </>
  );
}

function partOf({ state, beginsAt, reachedAt, endsAt }: Replay): number {
  if (state === 'done') return 1;
  const [begin, reached, end] = [beginsAt, reachedAt, endsAt].map((at) => Date.parse(at));
  const length = (end ?? 0) - (begin ?? 0);
  return length > 0 ? Math.min(1, Math.max(0, ((reached ?? 0) - (begin ?? 0)) / length)) : 0;
}

/** `3 messages were passed over` and why, for the title of a number. */
export function passedOverWords({ waiting, processing }: Replay): string {
  return `${plural(waiting, 'message')} waited there already, ${count(processing)} were processing`;
}
