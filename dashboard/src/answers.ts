// Answers of the API: the server's types after their way through JSON, where times are text. Those of a feature are in
// the folder of its screen.

import type {
  Attempt as AttemptRow,
  Delivery,
  MessageDetail,
} from '../../src/listing/message-detail.js';
import type { ListedMessage as ListedRow } from '../../src/listing/message-list.js';
import type { DestinationDetail as DetailRow } from '../../src/listing/destination-detail.js';
import type { DestinationReport, HealthMetric, RelayReport } from '../../src/listing/reports.js';
import type { DestinationStatistics } from '../../src/listing/destination-statistics.js';
import type { Overview as OverviewRows } from '../../src/listing/statistics.js';
import type { TailEvent as TailRow, TailWindow } from '../../src/listing/tail-events.js';
import type { StorageReport } from '../../src/listing/storage-report.js';
import type { Access } from '../../src/features/tokens/database.js';
import type { Source } from '../../src/server/route.js';

export type Sent<T> = T extends Date
  ? string
  : T extends (infer Item)[]
    ? Sent<Item>[]
    : T extends object
      ? { [Name in keyof T]: Sent<T[Name]> }
      : T;

export type Session = Access & { authentication: 'tokens' | 'none' };
export type ListedMessage = Sent<ListedRow>;
export type MessagePage = {
  messages: ListedMessage[];
  next: string | null;
  searched: number;
  searchedInAll: number;
};
export type Message = Sent<
  Omit<MessageDetail, 'deliveries'> & { deliveries: (Delivery & { canRestore: boolean })[] }
>;
export type Attempt = Sent<AttemptRow>;
export type Destination = Sent<DestinationReport>;
export type DestinationPage = { destinations: Destination[]; next: string | null };
export type DestinationDetail = Sent<DetailRow>;
export type Statistics = Sent<DestinationStatistics>;
export type Relay = Sent<RelayReport>;
export type Health = { health: HealthMetric[]; source: Source | null };
export type Overview = Sent<OverviewRows> & {
  health: Record<string, number | null>;
  alarms: { metric: string; alarm: string }[];
  source: Source | null;
};
export type Storage = Sent<StorageReport>;
export type TailEvent = Sent<TailRow>;
export type TailAnswer = Sent<TailWindow> & { tail: string };
