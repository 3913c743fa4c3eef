// Screen of rollouts: the share of the traffic that Waybill sends, the comparison with the other system, and the next
// step.

import type { Comparison, Rollout, RolloutComparison, Verdict } from './answers.js';
import { post, withQuery } from '../../api.js';
import { useLive } from '../../live.js';
import { Action } from '../../parts/action.js';
import { useQuestion } from '../../parts/dialog.js';
import { Filters } from '../../parts/filters.js';
import { Problem } from '../../parts/problem.js';
import { Table } from '../../parts/table.js';
import { Ago, Time } from '../../parts/time.js';
import { linkTo, usePlace } from '../../route.js';
import { count } from '../../shown.js';

type Step = { percent: number; shadow: boolean };

/** The usual steps; other shares are set on the command line. */
const steps: readonly Step[] = [
  { percent: 0, shadow: true },
  ...[0, 10, 50, 100].map((percent) => ({ percent, shadow: false })),
];

/** The same words as in the sums. */
const verdictWords: Record<Verdict, string> = {
  matched: 'alike',
  different: 'different',
  missing: 'only the other system',
  extra: 'only Waybill',
  waiting: 'waiting for the other side',
};

const shareOf = ({ percent, shadow }: Step): string => (shadow ? 'shadow' : `${percent} %`);

export function RolloutsScreen() {
  const { query } = usePlace();
  const name = query.get('rollout');
  const { ask, asking, dialog } = useQuestion(() => refresh());
  const { data, error, loading, refresh } = useLive<{ rollouts: Rollout[] }>('rollouts', {
    paused: asking,
  });
  const change = (rollout: Rollout, step: Step): void =>
    ask({
      title: `${rollout.name}: from ${shareOf(rollout)} to ${shareOf(step)}?`,
      text: (
        <p>
          {step.shadow
            ? `Everything is rendered and compared, and nothing is sent to ${rollout.destination}. The other system sends.`
            : `From now on Waybill sends ${step.percent} % of the keys to ${rollout.destination}; the other system is told to send the rest. What Waybill was given before stays with it.`}
        </p>
      ),
      button: `Change to ${shareOf(step)}`,
      danger: true,
      act: () => post(`rollouts/${encodeURIComponent(rollout.name)}`, step),
    });
  return (
    <>
      <header class="screen-head">
        <h1>Rollouts</h1>
      </header>
      <Problem error={error} again={refresh} />
      <Table
        label="Rollouts"
        rows={data?.rollouts}
        loading={loading}
        rowKey={(rollout) => rollout.name}
        empty="No route has a rollout: Waybill sends everything."
        columns={[
          {
            head: 'Rollout',
            inCard: 'title',
            cell: (rollout) => (
              <a href={linkTo('rollouts', { rollout: rollout.name })}>{rollout.name}</a>
            ),
          },
          { head: 'Destination', width: 'medium', cell: ({ destination }) => destination },
          {
            head: 'Sends',
            width: 'name',
            cell: (rollout) => (
              <>
                {rollout.shadow ? 'nothing (shadow)' : shareOf(rollout)}
                {!rollout.routed && <small class="why muted">no route has it any more</small>}
              </>
            ),
          },
          {
            head: 'Changed',
            width: 'large',
            cell: ({ changedAt, changedBy }) => (
              <span title={changedBy ?? 'by the configuration'}>
                <Ago at={changedAt} />
                {changedBy !== null && ` by ${changedBy}`}
              </span>
            ),
          },
          {
            head: 'Change to',
            width: 'steps',
            cell: (rollout) => (
              <span class="row-actions">
                {steps
                  .filter((step) => shareOf(step) !== shareOf(rollout))
                  .map((step) => (
                    <Action
                      key={shareOf(step)}
                      label={shareOf(step)}
                      act={() => change(rollout, step)}
                    />
                  ))}
              </span>
            ),
          },
        ]}
      />
      {name !== null && <Compared name={name} ignore={query.get('ignore')} />}
      {dialog}
    </>
  );
}

function Compared({ name, ignore }: { name: string; ignore: string | null }) {
  const { data, error, loading, refresh } = useLive<RolloutComparison>(
    withQuery(`rollouts/${encodeURIComponent(name)}`, { ignore, limit: 50 }),
  );
  const { matched = 0, different = 0, missing = 0, extra = 0, waiting = 0 } = data?.verdicts ?? {};
  return (
    <section>
      <h2 class="section">{name} in the shadow</h2>
      <Filters path="rollouts" filters={[{ name: 'ignore', label: 'Paths that may differ' }]} />
      <Problem error={error} again={refresh} />
      <p class="lead">
        {count(matched)} alike, {count(different)} different, {count(missing)} only the other
        system, {count(extra)} only Waybill, {count(waiting)} waiting for the other side
        {data?.comparedSince ? (
          <>
            {' '}
            (the newest, since <Time at={data.comparedSince} />
            ).
          </>
        ) : (
          '.'
        )}
      </p>
      <Table
        label="Differences"
        rows={data?.examples}
        loading={loading}
        rowKey={({ reference }) => reference}
        empty="There are no differences."
        columns={[
          {
            head: 'Reference',
            inCard: 'title',
            cell: ({ reference, messageId }) =>
              messageId === null ? (
                reference
              ) : (
                <a href={linkTo(`messages/${messageId}`)}>{reference}</a>
              ),
          },
          { head: 'Verdict', width: 'medium', cell: ({ verdict }) => verdictWords[verdict] },
          {
            head: 'Waybill',
            cell: (each) => <Body text={each.refused ?? each.rendered} />,
          },
          { head: 'Other system', cell: ({ sent }) => <Body text={sent} /> },
        ]}
      />
    </section>
  );
}

function Body({ text }: { text: Comparison['sent'] }) {
  if (text === null) return <span class="muted">–</span>;
  const shown = typeof text === 'string' ? text : JSON.stringify(text);
  return (
    <code class="error-cell" title={shown}>
      {shown.slice(0, 200)}
    </code>
  );
}
