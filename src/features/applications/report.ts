// Report on the applications that share a schema: their relays, versions and definitions.

import type { SingleRoute } from '../../core/route.js';
import type { Database } from '../../database/connection.js';
import { appliedId } from './database.js';

/** A current declaration of a living relay or of `waybill apply`. */
export type DeclarationReport = {
  /** The name of the relay, or `waybill apply`. */
  by: string;
  /** The version of the application, if its configuration gives one. */
  version: string | null;
  since: Date;
};

/** `by`: the current declarations that contain the definition; empty if nothing declares it, or if SQL defined it. */
export type ApplicationReport = {
  /** The application, or `sql`. */
  name: string;
  declarations: DeclarationReport[];
  destinations: { name: string; by: string[] }[];
  routes: (SingleRoute & { by: string[] })[];
};

/** Leaves out endpoints, which have their own lists. */
export async function readApplications(database: Database): Promise<ApplicationReport[]> {
  const { schema } = database;
  return database.query<ApplicationReport>(
    'read applications',
    `WITH declared AS MATERIALIZED (
       SELECT d.owner, coalesce(r.name, 'waybill apply') AS by, d.version, coalesce(r.started_at, d.made_at) AS since, d.definitions
         FROM ${schema}.declarations d LEFT JOIN ${schema}.relays r ON r.id = d.relay_id
        WHERE d.relay_id = '${appliedId}' OR r.heartbeat_at > clock_timestamp() - interval '1 minute')
     SELECT o.name,
            (SELECT coalesce(jsonb_agg(jsonb_build_object('by', d.by, 'version', d.version, 'since', d.since) ORDER BY d.since), '[]')
               FROM declared d WHERE d.owner = o.name) AS declarations,
            (SELECT coalesce(jsonb_agg(jsonb_build_object('name', t.name, 'by', ARRAY (
                       SELECT d.by FROM declared d
                        WHERE d.owner = o.name AND d.definitions -> 'destinations' @> jsonb_build_array(jsonb_build_object('name', t.name))
                        ORDER BY d.since)) ORDER BY t.name), '[]')
               FROM ${schema}.destination_owners w JOIN ${schema}.destinations t ON t.id = w.destination_id
              WHERE w.owner = o.name) AS destinations,
            (SELECT coalesce(jsonb_agg(x.route || jsonb_build_object('by', ARRAY (
                       SELECT d.by FROM declared d
                        WHERE d.owner = o.name AND d.definitions -> 'routes' @> jsonb_build_array(x.route) ORDER BY d.since))
                     ORDER BY x.route ->> 'to', x.route ->> 'topic'), '[]')
               FROM (SELECT jsonb_array_elements(${schema}.shown_routes(array_agg(r))) AS route
                       FROM ${schema}.routes r WHERE r.owner = o.name) x) AS routes
       FROM ${schema}.owners o
      WHERE o.name <> 'endpoints' AND (
              EXISTS (SELECT FROM declared d WHERE d.owner = o.name)
              OR EXISTS (SELECT FROM ${schema}.destination_owners w WHERE w.owner = o.name)
              OR EXISTS (SELECT FROM ${schema}.routes r WHERE r.owner = o.name))
      ORDER BY o.name`,
  );
}
