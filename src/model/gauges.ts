// How the database stands, as the metrics tell it.

export type Gauges = {
  destinations: {
    name: string;
    pending: number;
    oldestPendingSeconds: number | null;
    dead: number;
    stuck: number;
  }[];
};
