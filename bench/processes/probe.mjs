// Probe: runs in the handler of each contender and reports over IPC. Mode count: how many messages and how many
// different ids came, when the first did, and the processor time since then. Mode latency: when the handler of each
// message started.

import { nowMs } from './clock.mjs';
import './parent.mjs';

export function createProbe() {
  const expected = Number(process.env.BENCH_EXPECTED ?? 0);
  return process.env.BENCH_PROBE === 'latency' ? latencyProbe() : countingProbe(expected);
}

function countingProbe(expected) {
  const ids = new Set();
  let handled = 0;
  let firstMs = 0;
  let cpuAtFirstMs = 0;
  const cpuMs = () => (process.cpuUsage().user + process.cpuUsage().system) / 1000;
  answer('collect', () => ({
    type: 'counted',
    handled,
    distinct: ids.size,
    firstMs,
    cpuMs: cpuMs() - cpuAtFirstMs,
  }));
  return {
    readsPayload: false,
    handle(id) {
      if (handled === 0) {
        firstMs = nowMs();
        cpuAtFirstMs = cpuMs();
      }
      handled += 1;
      ids.add(id);
      if (handled === expected) process.send({ type: 'reached' });
    },
  };
}

function latencyProbe() {
  let starts = [];
  answer('collect', () => {
    const report = { type: 'started', starts };
    starts = [];
    return report;
  });
  return {
    readsPayload: true,
    handle(_id, payload) {
      if (payload.n >= 0) starts.push([payload.n, nowMs()]);
      else if (payload.n === -1) process.send({ type: 'warm' });
    },
  };
}

function answer(question, reply) {
  process.on('message', ({ type }) => {
    if (type === question) process.send(reply());
    if (type === 'measure') process.send({ type: 'memory', bytes: process.memoryUsage.rss() });
  });
  // the channel must not keep a stopped worker alive
  process.channel?.unref();
}
