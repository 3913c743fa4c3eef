// Shows the portal in the frame #webhooks, and gives it a token whenever it asks for one.

const frame = document.querySelector('#webhooks');
const { portal } = frame.dataset;

async function sendToken() {
  const response = await fetch('/webhook-token', { method: 'POST' });
  if (!response.ok) return;
  const { token } = await response.json();
  frame.contentWindow.postMessage({ type: 'waybill:token', token }, portal);
}

addEventListener('message', ({ source, origin, data }) => {
  if (source !== frame.contentWindow || origin !== portal) return;
  if (data?.type === 'waybill:token-needed') void sendToken();
});
frame.src = `${portal}/portal`;
