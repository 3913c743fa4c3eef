// One clock for all processes of a machine: milliseconds on the system's monotonic clock.

export const nowMs = () => Number(process.hrtime.bigint()) / 1e6;
