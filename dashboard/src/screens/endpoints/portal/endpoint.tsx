// Screen of one endpoint: its state, activity and deliveries, its secret, and what can be done with it.

import { useEffect, useState } from 'preact/hooks';

import { sendTest, setEnabled } from '../actions.js';
import { pathOf } from '../answers.js';
import type { Endpoint, ShownSecret } from '../answers.js';
import { EndpointDeliveries } from '../deliveries.js';
import { State } from '../state.js';
import { EndpointStatistics } from '../statistics.js';
import { Topics } from './endpoints.js';
import { SecretDialog, takeNewSecret } from './secret.js';
import { ApiError, post, remove } from '../../../api.js';
import { useLive } from '../../../live.js';
import { Action, useMayOperate } from '../../../parts/action.js';
import { useQuestion } from '../../../parts/dialog.js';
import type { Question } from '../../../parts/dialog.js';
import { Problem } from '../../../parts/problem.js';
import { Time } from '../../../parts/time.js';
import { goTo, linkTo } from '../../../route.js';
import { plural } from '../../../shown.js';

export function EndpointScreen({ name }: { name: string }) {
  const mayOperate = useMayOperate();
  const [secret, setSecret] = useState<ShownSecret | null>(() => takeNewSecret(name));
  const [gone, setGone] = useState(false);
  const {
    data: endpoint,
    error,
    refresh,
  } = useLive<Endpoint>(gone ? null : pathOf(name), { everyMs: 5000 });
  const { ask, dialog } = useQuestion(() => refresh());
  useEffect(() => {
    if (gone) goTo('#/');
  }, [gone]);
  if (gone) return null;
  if (endpoint === undefined)
    return (
      <>
        <Back />
        {error instanceof ApiError && error.status === 404 ? (
          <div class="portal-empty">
            <h1>There is no such endpoint</h1>
            <p>It was removed, or it never existed.</p>
          </div>
        ) : (
          <Problem error={error} again={refresh} />
        )}
      </>
    );
  const enable = async (): Promise<void> => {
    await setEnabled(endpoint);
    refresh();
  };
  const questions = questionsOf(endpoint, {
    gone: () => setGone(true),
    rotated: setSecret,
  });
  return (
    <>
      <Back />
      <header class="screen-head endpoint-head">
        <div class="endpoint-title">
          <h1>{endpoint.url}</h1>
          <p class="muted">{endpoint.description ?? endpoint.name}</p>
        </div>
        <State endpoint={endpoint} />
        {mayOperate && (
          <div class="head-actions">
            <Action label="Send test event" icon="send" act={() => sendTest(endpoint)} />
            <a
              class="button small"
              href={linkTo(`endpoints/${encodeURIComponent(endpoint.name)}/change`)}
            >
              Edit
            </a>
            <Action
              label={endpoint.enabled ? 'Disable' : 'Enable'}
              icon={endpoint.enabled ? 'pause' : 'play'}
              act={() => (endpoint.enabled ? ask(questions.disable) : enable())}
            />
            <Action label="Remove" icon="delete" kind="danger" act={() => ask(questions.remove)} />
          </div>
        )}
      </header>
      <Problem error={error} again={refresh} />
      {!endpoint.enabled && (
        <p class="notice">
          This endpoint is disabled{endpoint.disabledBecause && `: ${endpoint.disabledBecause}`}.
          Its events wait until it is enabled.
        </p>
      )}
      <div class="endpoint-parts">
        <div>
          <EndpointStatistics endpoint={endpoint} />
          <EndpointDeliveries endpoint={endpoint} />
        </div>
        <aside aria-label="Settings">
          <Secrets
            endpoint={endpoint}
            rotate={() => ask(questions.rotate)}
            retire={() => ask(questions.retire)}
          />
          <section class="panel">
            <h2>Events</h2>
            <Topics topics={endpoint.topics} />
          </section>
          <section class="panel">
            <h2>Details</h2>
            <dl class="endpoint-facts">
              <dt>Name</dt>
              <dd title={endpoint.name}>
                <code>{endpoint.name}</code>
              </dd>
              <dt>Created</dt>
              <dd>
                <Time at={endpoint.createdAt} />
              </dd>
              <dt>Changed</dt>
              <dd>
                <Time at={endpoint.changedAt} />
              </dd>
            </dl>
          </section>
        </aside>
      </div>
      {dialog}
      {secret && <SecretDialog secret={secret} close={() => setSecret(null)} />}
    </>
  );
}

function Back() {
  return (
    <nav class="back" aria-label="Back">
      <a href="#/">← Endpoints</a>
    </nav>
  );
}

type SecretsProps = { endpoint: Endpoint; rotate: () => void; retire: () => void };

function Secrets({ endpoint: { fingerprints }, rotate, retire }: SecretsProps) {
  const others = fingerprints.length - 1;
  return (
    <section class="panel">
      <h2>Signing secret</h2>
      <p class="muted">
        Every request is signed as Standard Webhooks describes. Check the signature before you trust
        a request.
      </p>
      <ul class="fingerprints" aria-label="Fingerprints of the secrets">
        {fingerprints.map((fingerprint, index) => (
          <li key={fingerprint}>
            <code>{fingerprint}</code>
            <span class="muted">{index === 0 ? 'newest' : 'older'}</span>
          </li>
        ))}
      </ul>
      <div class="row-actions">
        <Action label="Rotate" icon="retry" act={rotate} />
        {others > 0 && <Action label={`Retire ${plural(others, 'older', 'older')}`} act={retire} />}
      </div>
    </section>
  );
}

function questionsOf(
  endpoint: Endpoint,
  then: { gone: () => void; rotated: (secret: ShownSecret) => void },
): Record<'rotate' | 'retire' | 'disable' | 'remove', Question> {
  const { name, url, waiting } = endpoint;
  return {
    rotate: {
      title: 'Rotate the secret?',
      text: (
        <p>
          A new secret signs beside the old one. When your receiver knows the new one, retire the
          old one. No request is lost meanwhile.
        </p>
      ),
      button: 'Rotate',
      act: async () => then.rotated(await post<ShownSecret>(pathOf(name, '/rotate'))),
    },
    retire: {
      title: 'Retire the older secrets?',
      text: <p>Only the newest secret signs from now on. Your receiver must know it already.</p>,
      button: 'Retire',
      danger: true,
      act: () => post(pathOf(name, '/retire')),
    },
    disable: {
      title: 'Disable this endpoint?',
      text: <p>Events for it wait, and are sent when it is enabled again.</p>,
      button: 'Disable',
      act: () => setEnabled(endpoint),
    },
    remove: {
      title: 'Remove this endpoint?',
      text: (
        <p>
          <b>{url}</b> gets no more events, and its secret is deleted.
          {waiting > 0 && ` Not sent any more: ${plural(waiting, 'event')} that waited.`}
        </p>
      ),
      button: 'Remove',
      danger: true,
      act: async () => {
        await remove(pathOf(name));
        then.gone();
      },
    },
  };
}
