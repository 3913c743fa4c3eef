// Alerts panel of the overview: the alerts that fire and the alarms of the health view, each with buttons for its
// remedy. A user who may only read sees the links, but no button that changes something.

import type { Alert } from '../../../../src/features/alerts/database.js';
import { useLive } from '../../live.js';
import { Action } from '../../parts/action.js';
import { useQuestion } from '../../parts/dialog.js';
import { Problem, sentence } from '../../parts/problem.js';
import { Dot } from '../../parts/status.js';
import { withSeparators } from '../../shown.js';
import { remedyOf, shownAlarms } from './remedies.js';
import type { Alarm, Remedy, RemedyAction } from './remedies.js';
import type { RetryFailed } from '../retry-failed.js';

/** `alarms`: those of the health view, which are shown below the alerts. */
export function AlertsPanel({
  alarms,
  retryFailed,
}: {
  alarms: readonly Alarm[];
  retryFailed: RetryFailed;
}) {
  const { data, error, refresh } = useLive<{ alerts: Alert[] }>('alerts', { everyMs: 5000 });
  const { ask, dialog } = useQuestion((done) => done && refresh());
  const act = async ({ label, question, act: send }: RemedyAction): Promise<void> => {
    if (question !== undefined)
      return ask({
        title: label,
        text: <p>{question}</p>,
        button: label,
        act: () => send(retryFailed),
      });
    await send(retryFailed);
    refresh();
  };
  const firing = data?.alerts.filter((alert) => alert.firing) ?? [];
  const others = shownAlarms(alarms, firing);
  const calm = firing.length + others.length === 0;
  return (
    <section class={`panel alerts ${calm ? '' : 'firing'}`} aria-label="Alerts" tabIndex={0}>
      <header>
        <h2>Alerts</h2>
        <span class="muted">
          {data !== undefined && `${firing.length} of ${data.alerts.length} firing`}
        </span>
      </header>
      <Problem error={error} again={refresh} />
      {data === undefined ? (
        <p class="muted">Looking…</p>
      ) : calm ? (
        <p>
          <Dot kind="good" /> No alert is firing.
        </p>
      ) : (
        <ul>
          {firing.map((alert) => {
            const remedy = remedyOf(alert.alert, alert.destination ?? null);
            return (
              <li key={alert.alert}>
                <Dot kind="bad" />
                <div>
                  <p class="alert-sentence">{sentence(withSeparators(alert.sentence))}</p>
                  {remedy.hint !== undefined && <p class="muted">{remedy.hint}</p>}
                  <Buttons remedy={remedy} act={act} />
                </div>
              </li>
            );
          })}
          {others.map(({ metric, text, links }) => (
            <li key={metric}>
              <Dot kind="warn" />
              <div>
                <p>{sentence(withSeparators(text))}</p>
                <Buttons remedy={{ links }} act={act} />
              </div>
            </li>
          ))}
        </ul>
      )}
      {dialog}
    </section>
  );
}

type ButtonsProps = { remedy: Remedy; act: (action: RemedyAction) => Promise<void> };

function Buttons({ remedy: { links, action }, act }: ButtonsProps) {
  return (
    <div class="alert-buttons">
      {action && <Action label={action.label} icon={action.icon} act={() => act(action)} />}
      {links.map(({ label, to }) => (
        <a key={to} class="button small" href={to}>
          {label}
        </a>
      ))}
    </div>
  );
}
