// Every service that the contract is proven on.

import type { ServiceKind } from './service.js';
import { webhookService } from './webhook.js';

export const services: readonly ServiceKind[] = [webhookService];
