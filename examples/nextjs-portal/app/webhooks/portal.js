'use client';

import { useEffect, useRef } from 'react';

export function Portal({ portal }) {
  const ref = useRef(null);
  useEffect(() => {
    const frame = ref.current;
    async function sendToken() {
      const response = await fetch('/webhook-token', { method: 'POST' });
      if (!response.ok) return;
      const { token } = await response.json();
      frame.contentWindow.postMessage({ type: 'waybill:token', token }, portal);
    }
    function onMessage({ source, origin, data }) {
      if (source !== frame.contentWindow || origin !== portal) return;
      if (data?.type === 'waybill:token-needed') void sendToken();
    }
    addEventListener('message', onMessage);
    frame.src = `${portal}/portal`;
    return () => removeEventListener('message', onMessage);
  }, [portal]);
  return <iframe ref={ref} title="Webhooks" allow="clipboard-write" width="1000" height="800" />;
}
