// Login screen: exchanges a token for a cookie that scripts cannot read.

import { useState } from 'preact/hooks';

import { get, post } from '../api.js';
import { Problem } from '../parts/problem.js';

/** `ended`: the server has refused a login that was valid before. */
export function LoginScreen({ ended, loggedIn }: { ended: boolean; loggedIn: () => void }) {
  const [token, setToken] = useState('');
  const [error, setError] = useState<Error>();
  const [busy, setBusy] = useState(false);
  const logIn = async (): Promise<void> => {
    setBusy(true);
    try {
      await post('session', { token: token.trim() });
      await get('session').catch(() => {
        throw new Error(
          'the browser did not keep the login: in a frame of another site it never does. Open this page in its own window',
        );
      });
      loggedIn();
    } catch (failure) {
      setError(failure as Error);
      setBusy(false);
    }
  };
  return (
    <main class="alone">
      <form
        class="panel login"
        onSubmit={(event) => {
          event.preventDefault();
          void logIn();
        }}
      >
        <h1>
          <img src="./icon.svg" alt="" width="28" height="28" /> Waybill
        </h1>
        {ended && (
          <p class="notice" role="status">
            Your login has ended: it has expired, or its token was removed.
          </p>
        )}
        <label>
          Token
          <input
            type="password"
            autocomplete="current-password"
            required
            autofocus
            value={token}
            onInput={(event) => setToken(event.currentTarget.value)}
          />
        </label>
        <Problem error={error} />
        <button type="submit" class="primary" disabled={busy}>
          Log in
        </button>
        <p class="muted">
          Make one with <code>waybill tokens add</code>. It is exchanged for a login of twelve
          hours.
        </p>
      </form>
    </main>
  );
}
