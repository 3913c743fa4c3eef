// Token of the portal. It arrives in the fragment of the address, which browsers send to no server, or in a message of
// the embedding page. It is taken out of the address at once, and kept for this tab only. In a frame it is not kept: the
// embedding page is asked at each start, because it knows who is logged in now. When the server refuses the token, the
// embedding page is asked for a new one, and the request is sent again.

import { authenticateWith } from '../../../api.js';
import { applyTheme } from '../../../theme.js';
import { settings } from './settings.js';

const place = 'waybill-portal-token';
/** How long an embedding page has for its answer. */
const answerWithinMs = 10_000;
const positionForMs = 60_000;
const isFramed = window.parent !== window;

let token: string | null = null;
let position: string | null = null;
let asked: Promise<boolean> | undefined;
let answered: (renewed: boolean) => void = () => undefined;

/** Asks for a token if there is none. `tell` is called with false when there is none, and with true for a new one. */
export async function openAccess(tell: (valid: boolean) => void): Promise<void> {
  token ??= stored();
  addEventListener('hashchange', () => {
    if (takeFragment()) accept();
  });
  addEventListener('message', (event) => {
    const given = tokenIn(event);
    if (given === null) return;
    keep(given);
    accept();
  });
  function accept(): void {
    if (asked === undefined) tell(true);
    else answered(true);
  }
  authenticateWith({
    // an operator may be logged in with the same browser, and the portal must not act for them
    of: () => ({
      credentials: 'omit',
      headers: {
        authorization: `Bearer ${token ?? ''}`,
        ...(position !== null && { 'waybill-position': position }),
      },
    }),
    changed,
    async refused() {
      const renewed = await renew();
      if (!renewed) tell(false);
      return renewed;
    },
  });
  tell(token !== null || (await renew()));
}

/** The position of the last change, in place of the cookie that the operators' page has for it. */
function changed(reached: string): void {
  position = reached;
  // by then, every usable replica has it
  window.setTimeout(() => {
    if (position === reached) position = null;
  }, positionForMs);
}

/** Only the embedding page may send a token, and only if the configuration lists its origin. */
function tokenIn({ origin, source, data }: MessageEvent): string | null {
  if (source !== window.parent || !settings.embeddedBy.includes(origin)) return null;
  const { type, token: given } = (data ?? {}) as { type?: unknown; token?: unknown };
  return type === 'waybill:token' && typeof given === 'string' ? given : null;
}

async function renew(): Promise<boolean> {
  if (!isFramed) return false;
  asked ??= new Promise<boolean>((resolve) => {
    answered = resolve;
    window.setTimeout(() => resolve(false), answerWithinMs);
    // to any origin: it says nothing, and the policy of the page lets only listed origins embed it
    window.parent.postMessage({ type: 'waybill:token-needed' }, '*');
  }).finally(() => (asked = undefined));
  return asked;
}

/** Takes `#token=…&theme=dark` out of the address; false if there is none. */
export function takeFragment(): boolean {
  const given = new URLSearchParams(location.hash.slice(1));
  const found = given.get('token');
  if (found === null) return false;
  keep(found);
  const theme = given.get('theme');
  if (theme === 'light' || theme === 'dark') applyTheme(theme);
  history.replaceState(null, '', `${location.pathname}${location.search}#/`);
  dispatchEvent(new Event('hashchange'));
  return true;
}

function keep(given: string): void {
  token = given;
  if (isFramed) return;
  try {
    sessionStorage.setItem(place, given);
  } catch {
    // a browser may deny storage: the token is kept in memory
  }
}

function stored(): string | null {
  if (isFramed) return null;
  try {
    return sessionStorage.getItem(place);
  } catch {
    return null;
  }
}
