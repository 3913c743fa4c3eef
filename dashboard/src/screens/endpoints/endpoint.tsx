// Screen of one endpoint for operators: its activity and deliveries, which can be sent again.

import { sendTest, setEnabled } from './actions.js';
import { pathOf } from './answers.js';
import type { Endpoint } from './answers.js';
import { EndpointDeliveries } from './deliveries.js';
import { State } from './state.js';
import { EndpointStatistics } from './statistics.js';
import { useLive } from '../../live.js';
import { Action } from '../../parts/action.js';
import { Problem } from '../../parts/problem.js';
import { Time } from '../../parts/time.js';
import { linkTo } from '../../route.js';
import { useTitle } from '../../title.js';

export function EndpointScreen({ name }: { name: string }) {
  const { data: endpoint, error, refresh } = useLive<Endpoint>(pathOf(name));
  useTitle(endpoint?.url ?? 'Endpoint');
  const change = async (): Promise<void> => {
    if (endpoint) await setEnabled(endpoint);
    refresh();
  };
  return (
    <>
      <nav class="back" aria-label="Back">
        <a href="#/endpoints">← Endpoints</a>
      </nav>
      {endpoint === undefined && <h1>{name}</h1>}
      <Problem error={error} again={refresh} />
      {endpoint && (
        <>
          <header class="screen-head endpoint-head">
            <div class="endpoint-title">
              <h1>{endpoint.url}</h1>
              <p class="muted">{endpoint.description ?? endpoint.name}</p>
            </div>
            <State endpoint={endpoint} />
            <div class="head-actions">
              <Action label="Send a test" icon="send" act={() => sendTest(endpoint)} />
              <Action
                label={endpoint.enabled ? 'Disable' : 'Enable'}
                icon={endpoint.enabled ? 'pause' : 'play'}
                act={change}
              />
            </div>
          </header>
          <div class="endpoint-parts">
            <div>
              <EndpointStatistics endpoint={endpoint} />
              <EndpointDeliveries endpoint={endpoint} />
            </div>
            <aside aria-label="Settings">
              <section class="panel">
                <h2>Details</h2>
                <Details endpoint={endpoint} />
              </section>
            </aside>
          </div>
        </>
      )}
    </>
  );
}

function Details({ endpoint }: { endpoint: Endpoint }) {
  const { name, tenantId, topics, namespace, fingerprints, disabledBecause } = endpoint;
  return (
    <dl class="endpoint-facts">
      <dt>Name</dt>
      <dd title={name}>
        <code>{name}</code>
      </dd>
      <dt>Tenant</dt>
      <dd>
        {tenantId === null ? 'all' : <a href={linkTo('endpoints', { tenantId })}>{tenantId}</a>}
      </dd>
      <dt>Topics</dt>
      <dd title={topics.join(', ')}>{topics.join(', ')}</dd>
      <dt>Namespace</dt>
      <dd>{namespace ?? 'all'}</dd>
      <dt>Secrets</dt>
      <dd title={fingerprints.join(', ')}>{fingerprints.length}</dd>
      {disabledBecause !== null && (
        <>
          <dt>Disabled because</dt>
          <dd title={disabledBecause}>{disabledBecause}</dd>
        </>
      )}
      <dt>Created</dt>
      <dd>
        <Time at={endpoint.createdAt} />
      </dd>
      <dt>Changed</dt>
      <dd>
        <Time at={endpoint.changedAt} />
      </dd>
    </dl>
  );
}
