// The other files of this folder are for other runners.
export default { test: { include: ['vitest.test.mjs'] } };
