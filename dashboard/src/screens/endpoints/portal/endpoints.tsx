// Screen of all endpoints of the customer.

import type { Endpoint, Endpoints } from '../answers.js';
import { State } from '../state.js';
import { withQuery } from '../../../api.js';
import { useLive } from '../../../live.js';
import { useMayOperate } from '../../../parts/action.js';
import { Icon } from '../../../parts/icon.js';
import { Pager } from '../../../parts/pager.js';
import { Problem } from '../../../parts/problem.js';
import { linkTo, usePlace } from '../../../route.js';
import { countUpTo, plural } from '../../../shown.js';

const shownTopics = 3;
/** Where the API stops counting in a list. */
const countedAtMost = 1000;

export function EndpointsScreen() {
  const { query } = usePlace();
  const next = query.get('next');
  const mayOperate = useMayOperate();
  const { data, error, refresh } = useLive<Endpoints>(
    withQuery('endpoints', { order: 'problems', limit: 50, next }),
    { everyMs: 10_000 },
  );
  const isEmpty = data?.endpoints.length === 0 && next === null && data.next === null;
  return (
    <>
      <header class="screen-head">
        <div>
          <h1>Endpoints</h1>
          <p class="muted">Addresses of yours that receive events as they happen.</p>
        </div>
        {mayOperate && data !== undefined && !isEmpty && (
          <div class="head-actions">
            <a class="button primary" href="#/add">
              Add endpoint
            </a>
          </div>
        )}
      </header>
      <Problem error={error} again={refresh} />
      {isEmpty ? (
        <div class="portal-empty">
          <Icon path="M4 12h6M14 12h6M12 4v6M12 14v6M12 12h.01M6.3 6.3l3 3M14.7 14.7l3 3M17.7 6.3l-3 3M9.3 14.7l-3 3" />
          <h2>Receive events at your own address</h2>
          <p>
            Add an endpoint, choose its events, and get a signed request for each one. Failed
            requests are repeated.
          </p>
          {mayOperate && (
            <a class="button primary" href="#/add">
              Add endpoint
            </a>
          )}
        </div>
      ) : (
        <ul class="endpoint-list panel" aria-label="Endpoints">
          {data?.endpoints.map((endpoint) => (
            <EndpointItem key={endpoint.name} endpoint={endpoint} />
          ))}
          {data === undefined && !error && <li class="empty">Loading…</li>}
        </ul>
      )}
      {(next !== null || data?.next) && <Pager next={data?.next ?? null} />}
    </>
  );
}

function EndpointItem({ endpoint }: { endpoint: Endpoint }) {
  const { name, url, description, topics, waiting, dead } = endpoint;
  return (
    <li>
      <div class="endpoint-address">
        <a class="stretched" href={linkTo(`endpoints/${encodeURIComponent(name)}`)}>
          {url}
        </a>
        <span class="muted">{description ?? name}</span>
      </div>
      <Topics topics={topics} most={shownTopics} />
      <div class="endpoint-state">
        <State endpoint={endpoint} />
        {(waiting > 0 || dead > 0) && (
          <span class="muted">
            {[
              waiting > 0 && `${countUpTo(waiting, countedAtMost)} waiting`,
              dead > 0 && `${countUpTo(dead, countedAtMost)} failed`,
            ]
              .filter(Boolean)
              .join(' · ')}
          </span>
        )}
      </div>
    </li>
  );
}

export function Topics({ topics, most }: { topics: readonly string[]; most?: number }) {
  if (topics.length === 1 && topics[0] === '*') return <span class="topics">All events</span>;
  const shown = topics.slice(0, most);
  return (
    <span class="topics" title={topics.join(', ')}>
      {shown.map((topic) => (
        <code key={topic}>{topic}</code>
      ))}
      {shown.length < topics.length && (
        <span class="muted">and {plural(topics.length - shown.length, 'other')}</span>
      )}
    </span>
  );
}
