// Copy button: puts text on the clipboard, and confirms it.

import { useState } from 'preact/hooks';

import { Icon } from './icon.js';

type CopyProps = { text: string | (() => Promise<string>); label: string; bare?: boolean };

export function Copy({ text, label, bare = false }: CopyProps) {
  const [done, setDone] = useState('');
  const copy = async (): Promise<void> => {
    try {
      await navigator.clipboard.writeText(typeof text === 'string' ? text : await text());
      setDone('Copied');
    } catch {
      // without TLS, browsers offer no clipboard, except on localhost
      setDone('Not possible here');
    }
    window.setTimeout(() => setDone(''), 2000);
  };
  return (
    <button
      type="button"
      class={bare ? 'bare' : 'small'}
      aria-label={label}
      title={done || label}
      onClick={() => void copy()}
    >
      <Icon name="copy" /> {(!bare || done !== '') && (done || label)}
    </button>
  );
}
